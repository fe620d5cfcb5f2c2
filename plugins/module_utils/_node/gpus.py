# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One GPU's record: what the bound driver and its files say of it."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import GpuRecord, MigDevice, Problem, problem
from ansible_collections.gpuops.k8s.plugins.module_utils._node import drm, topology
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root
from ansible_collections.gpuops.k8s.plugins.module_utils._node.pci import PciFunction, name_from_pci_ids
from ansible_collections.gpuops.k8s.plugins.module_utils._node.topology import TopologyNode
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Model, Vendor

_NO_MODEL = Model("", 0, "")


def record(root: Root, vendor: Vendor, function: PciFunction, index: int, nodes: Sequence[TopologyNode]) -> GpuRecord:
    """The record of a GPU from its files alone, with its state by the bound driver; judge and offer come later."""
    gpu = _from_bus(vendor, function, index)
    own = [node for node in nodes if node.address == function.address]
    known = vendor.models.get(function.device_id, _NO_MODEL)
    if function.driver:
        gpu["card"], render = drm.nodes(root, function.folder)
        gpu["render_node"] = f"/dev/dri/{render}" if render else ""
    information = _information(root, vendor, function) if function.driver in vendor.resources else {}
    gpu["model"] = _model(root, known, vendor, function, information)
    gpu["memory_bytes"], gpu["memory_source"] = _memory(root, vendor, function, gpu["card"], own)
    gpu["capability"] = (own[0].target if own else "") or known.capability or known.architecture
    gpu["virtual_functions"] = root.number(f"{function.folder}/sriov_numvfs") or 0
    if function.driver in vendor.resources:
        _add_driven(root, vendor, function, gpu, information)
    return gpu


def _add_driven(root: Root, vendor: Vendor, function: PciFunction, gpu: GpuRecord, information: Mapping[str, str]) -> None:
    """What only the driver that serves containers tells."""
    reading = vendor.reading
    gpu["driver_version"] = version(root, vendor, function.driver)
    gpu["uuid"] = _uuid(root, vendor, function, information)
    gpu["device_nodes"] = _own_nodes(vendor, information, gpu)
    gpu["kernel_module_flavor"] = flavor(root, vendor)
    gpu["mig_devices"] = _instances(root, vendor, information)
    gpu["mig_mode"] = "enabled" if gpu["mig_devices"] else ""
    modes = {key: root.read(f"{function.folder}/{name}") for key, name in reading.mode_files.items()}
    gpu["compute_partition_mode"] = modes.get("compute_partition_mode", "")
    gpu["memory_partition_mode"] = modes.get("memory_partition_mode", "")
    counted = bool(reading.ecc_file) and root.exists(f"{function.folder}/{reading.ecc_file}")
    gpu["ecc"] = "enabled" if counted else ""


def _from_bus(vendor: Vendor, function: PciFunction, index: int) -> GpuRecord:
    """What the PCI bus and the catalogue tell; everything else is empty."""
    known = vendor.models.get(function.device_id, _NO_MODEL)
    return {
        "vendor": vendor.name, "pci_address": function.address, "vendor_id": function.vendor_id,
        "device_id": function.device_id, "model": known.name, "memory_bytes": None, "memory_source": "unknown",
        "architecture": known.architecture, "driver": function.driver, "driver_version": "",
        "numa_node": function.numa_node, "index": index, "uuid": "", "card": "", "device_numbers": {}, "device_nodes": [],
        "render_node": "", "partitions": [], "partition_nodes": {}, "state": _state(vendor, function.driver),
        "ready": False, "resource": "", "capability": "",
        "integrated": known.integrated or _is_integrated(vendor, function),
        "virtual_function": bool(function.physical_function), "physical_function": function.physical_function,
        "virtual_functions": 0, "excluded": "", "kernel_module_flavor": "", "mig_mode": "", "mig_devices": [],
        "compute_partition_mode": "", "memory_partition_mode": "", "ecc": "", "peers": [],
    }  # fmt: skip


def _state(vendor: Vendor, driver: str) -> str:
    if driver in vendor.resources:
        return "ready"
    if not driver:
        return "no_driver"
    # Variants of vfio-pci for one vendor's virtual functions have it in their name: nvidia-vfio-pci, xe-vfio-pci.
    if driver.replace("_", "-").endswith("vfio-pci"):
        return "vfio"
    return "nouveau" if driver == "nouveau" else "wrong_driver"


def _is_integrated(vendor: Vendor, function: PciFunction) -> bool:
    """Whether place or neighbours give away that it is part of the processor, for models that are in no catalogue."""
    if function.device_id in vendor.models:
        return False
    placed = any(fnmatchcase(function.address, pattern) for pattern in vendor.reading.integrated_addresses)
    return placed or bool(set(function.siblings) & set(vendor.reading.integrated_siblings))


def _information(root: Root, vendor: Vendor, function: PciFunction) -> Dict[str, str]:
    path = vendor.reading.information
    if not path:
        return {}
    pairs = (line.partition(":") for line in root.read(path.format(pci=function.address)).splitlines())
    return {key.strip(): value.strip() for key, separator, value in pairs if separator}


def _uuid(root: Root, vendor: Vendor, function: PciFunction, information: Mapping[str, str]) -> str:
    uuid = information.get(vendor.reading.uuid_key, "") if vendor.reading.uuid_key else ""
    if vendor.reading.uuid_file:
        uuid = root.read(f"{function.folder}/{vendor.reading.uuid_file}")
    # Before the first program has opened the GPU, the driver prints question marks.
    return "" if "?" in uuid else uuid


def _own_nodes(vendor: Vendor, information: Mapping[str, str], gpu: GpuRecord) -> List[str]:
    if vendor.reading.drm_nodes:
        return [path for path in (f"/dev/dri/{gpu['card']}" if gpu["card"] else "", gpu["render_node"]) if path]
    minor = information.get(vendor.reading.minor_key, "")
    return [vendor.reading.device_node.format(minor=minor)] if minor.isdecimal() and vendor.reading.device_node else []


def _instances(root: Root, vendor: Vendor, information: Mapping[str, str]) -> List[MigDevice]:
    """One nameless entry for each compute instance: the kernel's files tell how many there are and not what they are."""
    minor = information.get(vendor.reading.minor_key, "")
    folder = vendor.reading.instances.format(minor=minor)
    found: List[MigDevice] = []
    for instance in root.names(folder) if folder and minor.isdecimal() else []:
        parts = [name for name in root.names(f"{folder}/{instance}") if name.startswith("ci")]
        found.extend({"uuid": "", "profile": ""} for _part in parts)
    return found


def _model(root: Root, known: Model, vendor: Vendor, function: PciFunction, information: Mapping[str, str]) -> str:
    if known.name:
        return known.name
    told = information.get(vendor.reading.model_key, "")
    named = told or name_from_pci_ids(root, function.vendor_id, function.device_id)
    return named or f"unknown {function.vendor_id}:{function.device_id}"


def _memory(
    root: Root, vendor: Vendor, function: PciFunction, card: str, nodes: List[TopologyNode]
) -> Tuple[Optional[int], str]:
    if function.driver in vendor.resources:
        for pattern in vendor.reading.memory_files:
            found = root.match(f"{function.folder}/{pattern.format(card=card)}")
            total = sum(number for number in map(root.number, found) if number and number > 0)
            if total:
                return total, "driver"
        total = topology.memory(root, nodes)
        if total > 0:
            return total, "driver"
    known = vendor.models.get(function.device_id)
    # A virtual function has a share of its GPU's memory, and only its driver knows how much.
    if known is None or function.physical_function:
        return None, "unknown"
    return (known.memory_bytes, "nominal") if known.memory_bytes else (None, "shared")


def version(root: Root, vendor: Vendor, driver: str) -> str:
    """Version of a kernel driver, "" where it is part of the kernel and has none."""
    for path in vendor.reading.version_files:
        match = re.search(r"\d+\.\d+(?:\.\d+)*", root.read(path.format(driver=driver)))
        if match:
            return match.group(0)
    return ""


def flavor(root: Root, vendor: Vendor) -> str:
    """Flavor of the loaded kernel module, "" where there is but one."""
    text = root.read(vendor.reading.flavor_file) if vendor.reading.flavor_file else ""
    return next((name for name, pattern in vendor.reading.flavors.items() if re.search(pattern, text)), "")


def add_partitions(root: Root, vendor: Vendor, gpus: List[GpuRecord], nodes: Sequence[TopologyNode]) -> List[Problem]:
    """Give each GPU its partitions; those that belong to no GPU become problems."""
    owners = {node.render_minor: node.address for node in nodes}
    found = drm.partitions(root, vendor.reading.partition_folders, owners)
    for gpu in gpus:
        own = found.pop(gpu["pci_address"], {}) if gpu["state"] == "ready" else {}
        gpu["partitions"] = list(own)
        gpu["partition_nodes"] = own
    hint = f"Compare {vendor.reading.topology} with the PCI addresses; load the driver anew."
    return [
        problem("partition_without_gpu", name, f"Partition {name} belongs to no GPU that the topology names.", hint)
        for partitions in found.values()
        for name in partitions
    ]
