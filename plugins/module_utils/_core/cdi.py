# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Specifications of the Container Device Interface (CDI): made, checked and compared.

Source: the specification of the container device interface, SPEC.md and its table of versions.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError

Spec = Dict[str, Any]
NAMINGS = ("index", "uuid", "pci_address")
_KIND = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$")
_NAME = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$")
_VERSION = re.compile(r"^\d+\.\d+\.\d+$")
ALL = "all"


def build(
    kind: str, gpus: Sequence[Mapping[str, Any]], naming: Sequence[str], shared: Sequence[str], groups: Sequence[int]
) -> Spec:
    """A specification with the device nodes of GPU records, each under its names and all together as C(all).

    C(shared) are device nodes that every container of the vendor needs, C(groups) ids of groups that it joins.
    A partition is a device of its own too, and a part of its GPU.
    """
    devices: Dict[str, List[str]] = {}
    for gpu in gpus:
        partitions: Mapping[str, Sequence[str]] = gpu.get("partition_nodes") or {}
        nodes = [*gpu["device_nodes"], *(node for name in sorted(partitions) for node in partitions[name])]
        devices.update(dict.fromkeys(names_of(gpu, naming), nodes))
        devices.update({name: list(nodes) for name, nodes in partitions.items()})
    devices[ALL] = sorted({node for nodes in devices.values() for node in nodes})
    spec: Spec = {"cdiVersion": "", "kind": kind, "devices": [_device(name, devices[name]) for name in sorted(devices)]}
    edits: Dict[str, Any] = {}
    if shared:
        edits["deviceNodes"] = [{"path": node} for node in shared]
    if groups:
        edits["additionalGids"] = sorted(set(groups))
    if edits:
        spec["containerEdits"] = edits
    spec["cdiVersion"] = minimum_version(spec)
    return spec


def names_of(gpu: Mapping[str, Any], naming: Sequence[str]) -> List[str]:
    """The names of a GPU in a specification; what the record does not have gives no name."""
    return [str(gpu[key]) for key in naming if gpu.get(key) not in (None, "")]


def rename(spec: Spec, gpus: Sequence[Mapping[str, Any]], naming: Sequence[str]) -> Spec:
    """The specification of a vendor's program with the GPUs under the wanted names.

    Devices that are no whole GPU keep their names. Raises GpuOpsError if a GPU is not in it.
    """
    found = {device["name"]: device for device in spec["devices"]}
    kept = dict(found)
    for gpu in gpus:
        own = [name for name in names_of(gpu, ("uuid", "index")) if name in found]
        if not own:
            raise GpuOpsError(
                f"the GPU {gpu['pci_address']} is not in it", "Run the generator on the node and read what it says."
            )
        for name in own:
            kept.pop(name, None)
    for gpu in gpus:
        device = next(found[name] for name in names_of(gpu, ("uuid", "index")) if name in found)
        kept.update({name: {**device, "name": name} for name in names_of(gpu, naming)})
    renamed = {**spec, "devices": [kept[name] for name in sorted(kept)]}
    return {**renamed, "cdiVersion": max(spec["cdiVersion"], minimum_version(renamed), key=_parts)}


def minimum_version(spec: Mapping[str, Any]) -> str:
    """The oldest version of the specification that has everything that C(spec) uses, so that old runtimes can read it."""
    edits = [spec.get("containerEdits") or {}, *((device.get("containerEdits") or {}) for device in spec.get("devices") or [])]
    if any("additionalGids" in edit or "intelRdt" in edit for edit in edits):
        return "0.7.0"
    annotated = "annotations" in spec or any("annotations" in device for device in spec.get("devices") or [])
    if annotated or "." in str(spec.get("kind", "")).partition("/")[2]:
        return "0.6.0"
    nodes = [node for edit in edits for node in edit.get("deviceNodes") or []]
    numbered = any(str(device.get("name", ""))[:1].isdigit() for device in spec.get("devices") or [])
    return "0.5.0" if numbered or any("hostPath" in node for node in nodes) else "0.3.0"


def problems(spec: Any) -> List[str]:
    """What makes a runtime refuse a specification; empty for a good one."""
    if not isinstance(spec, dict):
        return ["it is not an object"]
    found = []
    if not _VERSION.match(str(spec.get("cdiVersion", ""))):
        found.append(f"cdiVersion is {spec.get('cdiVersion')!r}")
    if not _KIND.match(str(spec.get("kind", ""))):
        found.append(f"kind is {spec.get('kind')!r}")
    devices = spec.get("devices")
    if not isinstance(devices, list) or not devices:
        return [*found, "it has no devices"]
    seen = set()
    for device in devices:
        name = device.get("name") if isinstance(device, dict) else None
        if not isinstance(name, str) or not _NAME.match(name):
            found.append(f"a device has the name {name!r}")
        elif name in seen:
            found.append(f"the device {name} is there twice")
        elif not _is_edit(device.get("containerEdits")):
            found.append(f"the device {name} has no containerEdits, or device nodes without a path")
        seen.add(name)
    if not found and _parts(minimum_version(spec)) > _parts(spec["cdiVersion"]):
        found.append(f"cdiVersion {spec['cdiVersion']} is older than what it uses, {minimum_version(spec)}")
    return found


def device_nodes(spec: Mapping[str, Any]) -> List[str]:
    """Sorted paths of the device nodes on the host that a good specification hands over."""
    edits = [spec.get("containerEdits") or {}, *(device["containerEdits"] for device in spec["devices"])]
    return sorted({node.get("hostPath") or node["path"] for edit in edits for node in edit.get("deviceNodes") or []})


def _device(name: str, nodes: Sequence[str]) -> Dict[str, Any]:
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": node} for node in nodes]}}


def _is_edit(edit: Any) -> bool:
    if not isinstance(edit, dict) or not edit:
        return False
    nodes = edit.get("deviceNodes") or []
    return isinstance(nodes, list) and all(isinstance(node, dict) and isinstance(node.get("path"), str) for node in nodes)


def _parts(version: str) -> List[int]:
    return [int(part) for part in version.split(".")]
