# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PCI functions of a node, from sysfs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root

FOLDER = "/sys/bus/pci/devices"
_ADDRESS = re.compile(r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
# VGA, 3D and other display controllers, and processing accelerators (what AMD's partition-only parts say).
# A card's audio, USB and serial functions have other classes and are not GPUs.
DISPLAY_CLASSES = ("0300", "0302", "0380")
CONTROLLER_CLASSES = (*DISPLAY_CLASSES, "1200")


@dataclass(frozen=True)
class PciFunction:
    """One PCI function. Ids are lower-case hex without C(0x)."""

    address: str
    vendor_id: str
    device_id: str
    class_code: str  # base class and subclass, four digits
    driver: str  # "" if none is bound
    numa_node: int  # -1 if the platform has none
    physical_function: str = ""  # address of the function that this one is a virtual function of
    siblings: Tuple[str, ...] = ()  # classes of the other functions of the same device

    @property
    def folder(self) -> str:
        """Its folder in sysfs."""
        return f"{FOLDER}/{self.address}"


@dataclass
class Bus:
    """What was found: the functions that may be GPUs in the order of their addresses, and how many there are of all kinds."""

    controllers: List[PciFunction] = field(default_factory=list)
    functions: int = 0


def read(root: Root) -> Bus:
    """All functions that are display controllers or accelerators by class; entries that cannot be read are left out."""
    names = [name for name in root.names(FOLDER) if _ADDRESS.match(name)]
    # Most functions are bridges and the like: the class alone tells that there is nothing more to read.
    classes = {name: _hex(root.read(f"{FOLDER}/{name}/class"), 6)[:4] for name in names}
    found = (_function(root, name, classes) for name in names if classes[name] in CONTROLLER_CLASSES)
    return Bus([function for function in found if function.vendor_id], len(names))


def _function(root: Root, address: str, classes: Dict[str, str]) -> PciFunction:
    folder = f"{FOLDER}/{address}"
    neighbours = (f"{address[:-1]}{number}" for number in range(8))
    return PciFunction(
        address=address,
        vendor_id=_hex(root.read(f"{folder}/vendor"), 4),
        device_id=_hex(root.read(f"{folder}/device"), 4),
        class_code=classes[address],
        driver=root.link_name(f"{folder}/driver"),
        numa_node=_number(root.read(f"{folder}/numa_node")),
        physical_function=root.link_name(f"{folder}/physfn"),
        siblings=tuple(classes[name] for name in neighbours if name != address and name in classes),
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
