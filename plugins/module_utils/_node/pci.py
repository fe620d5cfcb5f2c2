# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PCI functions of a node, from sysfs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import List

from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root

FOLDER = "/sys/bus/pci/devices"
_ADDRESS = re.compile(r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
# VGA, 3D and other display controllers, and processing accelerators (what AMD's partition-only parts say).
# A card's audio and USB functions have other classes and are not GPUs.
GPU_CLASSES = ("0300", "0302", "0380", "1200")


@dataclass(frozen=True)
class PciFunction:
    """One PCI function. Ids are lower-case hex without C(0x)."""

    address: str
    vendor_id: str
    device_id: str
    class_code: str  # base class and subclass, four digits
    driver: str  # "" if none is bound
    numa_node: int  # -1 if the platform has none
    virtual: bool  # a virtual function of another one

    @property
    def folder(self) -> str:
        """Its folder in sysfs."""
        return f"{FOLDER}/{self.address}"


def functions(root: Root) -> List[PciFunction]:
    """All PCI functions in the order of their addresses; entries that cannot be read are left out."""
    found = (_function(root, name) for name in root.names(FOLDER) if _ADDRESS.match(name))
    return [function for function in found if function.vendor_id and function.class_code]


def gpu_functions(root: Root) -> List[PciFunction]:
    """The functions that are GPUs by class, of any vendor.

    A virtual function without a driver is not counted: it is the idle share of a GPU that is counted already.
    """
    return [item for item in functions(root) if item.class_code in GPU_CLASSES and (item.driver or not item.virtual)]


def _function(root: Root, address: str) -> PciFunction:
    folder = f"{FOLDER}/{address}"
    return PciFunction(
        address=address,
        vendor_id=_hex(root.read(f"{folder}/vendor"), 4),
        device_id=_hex(root.read(f"{folder}/device"), 4),
        class_code=_hex(root.read(f"{folder}/class"), 6)[:4],
        driver=root.link_name(f"{folder}/driver"),
        numa_node=_number(root.read(f"{folder}/numa_node")),
        virtual=root.exists(f"{folder}/physfn"),
    )


def _hex(text: str, digits: int) -> str:
    try:
        return format(int(text, 16), f"0{digits}x")
    except ValueError:
        return ""


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1


def name_from_pci_ids(root: Root, vendor_id: str, device_id: str) -> str:
    """The name that the node's pci.ids gives to a device, "" if it has none."""
    for path in ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"):
        inside = False
        for line in root.read(path).splitlines():
            if line and line[0] not in "\t#":
                inside = line.startswith(vendor_id)
            elif inside and line.startswith("\t" + device_id):
                return line.strip()[len(device_id) :].strip()
    return ""
