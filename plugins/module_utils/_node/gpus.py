# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One GPU's record: what the bound driver, its files and the vendor's tool say of it."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import GpuRecord, Problem
from ansible_collections.gpuops.k8s.plugins.module_utils._node import drm
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root
from ansible_collections.gpuops.k8s.plugins.module_utils._node.pci import PciFunction, name_from_pci_ids
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

MIB = 1024**2


def record(root: Root, vendor: Vendor, function: PciFunction, index: int) -> GpuRecord:
    """The record of a GPU from its files alone, with state and resource by the bound driver."""
    serves = function.driver in vendor.resources
    information = _information(root, vendor, function) if serves else {}
    card, render = drm.nodes(root, function.folder) if function.driver else ("", "")
    memory, source = _memory(root, vendor, function, card)
    return {
        "vendor": vendor.name,
        "pci_address": function.address,
        "vendor_id": function.vendor_id,
        "device_id": function.device_id,
        "model": _model(root, vendor, function, information),
        "memory_bytes": memory,
        "memory_source": source,
        "architecture": vendor.models[function.device_id].architecture if function.device_id in vendor.models else "",
        "driver": function.driver,
        "driver_version": _version(root, vendor, function.driver) if serves else "",
        "numa_node": function.numa_node,
        "index": index,
        "uuid": _uuid(root, vendor, function, information) if serves else "",
        "card": card,
        "device_numbers": {},
        "device_nodes": _own_nodes(vendor, information, card, render) if serves else [],
        "render_node": f"/dev/dri/{render}" if render else "",
        "partitions": [],
        "partition_nodes": {},
        "state": _state(vendor, function.driver),
        "ready": False,
        "resource": "",
    }


def _state(vendor: Vendor, driver: str) -> str:
    if driver in vendor.resources:
        return "ready"
    if not driver:
        return "no_driver"
    return {"vfio-pci": "vfio", "nouveau": "nouveau"}.get(driver, "wrong_driver")


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


def _own_nodes(vendor: Vendor, information: Mapping[str, str], card: str, render: str) -> List[str]:
    if vendor.reading.drm_nodes:
        return [f"/dev/dri/{name}" for name in (card, render) if name]
    minor = information.get(vendor.reading.minor_key, "")
    return [vendor.reading.device_node.format(minor=minor)] if minor.isdigit() and vendor.reading.device_node else []


def _model(root: Root, vendor: Vendor, function: PciFunction, information: Mapping[str, str]) -> str:
    known = vendor.models.get(function.device_id)
    if known:
        return known.name
    told = information.get(vendor.reading.model_key, "")
    named = told or name_from_pci_ids(root, function.vendor_id, function.device_id)
    return named or f"unknown {function.vendor_id}:{function.device_id}"


def _memory(root: Root, vendor: Vendor, function: PciFunction, card: str) -> Tuple[Optional[int], str]:
    for pattern in vendor.reading.memory_files if function.driver in vendor.resources else ():
        found = root.match(f"{function.folder}/{pattern.format(card=card)}")
        sizes = [int(text) for text in map(root.read, found) if text.isdigit()]
        if sum(sizes) > 0:
            return sum(sizes), "driver"
    known = vendor.models.get(function.device_id)
    return (known.memory_bytes, "nominal") if known else (None, "unknown")


def _version(root: Root, vendor: Vendor, driver: str) -> str:
    for path in vendor.reading.version_files:
        match = re.search(r"\d+\.\d+(?:\.\d+)*", root.read(path.format(driver=driver)))
        if match:
            return match.group(0)
    return ""


def add_partitions(root: Root, vendor: Vendor, gpus: List[GpuRecord]) -> List[Problem]:
    """Give each GPU its partitions; those that belong to no GPU become problems."""
    found = drm.partitions(root, vendor.reading.partition_folders, vendor.reading.topology)
    for gpu in gpus:
        own = found.pop(gpu["pci_address"].rsplit(".", 1)[0], {}) if gpu["state"] == "ready" else {}
        gpu["partitions"] = list(own)
        gpu["partition_nodes"] = own
    return [
        {
            "code": "partition_without_gpu",
            "subject": name,
            "message": f"Partition {name} belongs to no GPU that the topology names.",
            "hint": f"Compare {vendor.reading.topology} with the PCI addresses; load the driver anew.",
        }
        for partitions in found.values()
        for name in partitions
    ]


def merge_tool_rows(vendor: Vendor, output: str, gpus: List[GpuRecord]) -> int:
    """Take what the tool printed into the records; returns the number of GPUs that it named.

    The tool's lines are comma separated in the order of C(tool_columns); memory is in MiB.
    """
    by_address = {_short(gpu["pci_address"]): gpu for gpu in gpus}
    named = 0
    for line in output.splitlines():
        values = [value.strip() for value in line.split(",")]
        row = {key: value for key, value in zip(vendor.reading.tool_columns, values) if key}
        gpu = by_address.get(_short(row.get("pci_address", "")))
        if gpu is None:
            continue
        named += 1
        gpu["uuid"] = gpu["uuid"] or row.get("uuid", "")
        gpu["driver_version"] = gpu["driver_version"] or row.get("driver_version", "")
        if gpu["model"].startswith("unknown ") and row.get("model"):
            gpu["model"] = row["model"]
        if row.get("memory_mib", "").isdigit():
            gpu["memory_bytes"], gpu["memory_source"] = int(row["memory_mib"]) * MIB, "driver"
    return named


def _short(address: str) -> str:
    """Address without leading zeros of the domain: tools print eight digits, the kernel four."""
    return address.strip().lower().lstrip("0")
