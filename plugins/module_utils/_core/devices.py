# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device node belongs to which GPU, and which GPU a device id of the kubelet means, on one node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Protocol, Set, Tuple


class PluginData(Protocol):
    """What is needed of a vendor's device plugin here."""

    @property
    def socket(self) -> str:
        """Pattern of the socket's file name."""


class VendorData(Protocol):
    """What verification needs to know of a vendor; the vendor records have it."""

    @property
    def name(self) -> str:
        """Registry name."""

    @property
    def resources(self) -> Mapping[str, str]:
        """Bound kernel driver to extended resource."""

    @property
    def device_id_pattern(self) -> str:
        """Regular expression of a device id, with the group C(key)."""

    @property
    def device_id_fact(self) -> str:
        """Key of the GPU record that the group equals."""

    @property
    def visible_by_runtime(self) -> Tuple[str, ...]:
        """Values of the environment variable where the container runtime gave the devices."""

    @property
    def device_globs(self) -> Tuple[str, ...]:
        """Device nodes of single GPUs."""

    @property
    def control_nodes(self) -> Tuple[str, ...]:
        """Device nodes that all GPUs share."""

    @property
    def required_nodes(self) -> Tuple[str, ...]:
        """Control nodes without which no program works."""

    @property
    def visible_env(self) -> str:
        """Environment variable that names the devices inside a container."""

    @property
    def stale_resource_prefix(self) -> str:
        """Resources below it belong to the vendor."""

    @property
    def plugin(self) -> PluginData:
        """The vendor's device plugin."""


@dataclass(frozen=True)
class Unit:
    """One thing that a plugin can hand out: a GPU, or a partition of one."""

    key: str  # what the device id names: uuid, PCI address, card, partition id
    gpu: str  # PCI address of the physical GPU
    resource: str
    nodes: FrozenSet[str]  # device nodes that a holder must be able to open


class NodeDevices:
    """The GPUs of one node, looked up by device node and by device id."""

    def __init__(self, facts: Mapping[str, Any], vendors: Mapping[str, VendorData]) -> None:
        self.units: List[Unit] = []
        self._by_path: Dict[str, str] = {}
        self._gpus_by_number: Dict[str, Set[str]] = {}
        self._units_by_key: Dict[Tuple[str, str], Unit] = {}
        self._patterns: Dict[str, str] = {}
        for gpu in facts.get("gpus", []):
            vendor = vendors.get(gpu["vendor"])
            if vendor is not None:
                self._add(gpu, vendor)

    def _add(self, gpu: Mapping[str, Any], vendor: VendorData) -> None:
        address, resource = gpu["pci_address"], gpu.get("resource", "")
        own = set(gpu.get("device_nodes", []))
        own.update(path for path in (gpu.get("render_node"), f"/dev/dri/{gpu['card']}" if gpu.get("card") else "") if path)
        partitions = gpu.get("partition_nodes") or {}
        for path in own.union(*partitions.values()):
            self._by_path[path] = address
        for path, number in (gpu.get("device_numbers") or {}).items():
            if self._by_path.get(path) == address:
                self._gpus_by_number.setdefault(number, set()).add(address)
        if not resource:
            return
        self._patterns[resource] = vendor.device_id_pattern
        handed_out = frozenset(path for path in own if is_device_node(path, vendor))
        self._remember(Unit(str(gpu.get(vendor.device_id_fact) or address), address, resource, handed_out))
        for key, paths in partitions.items():
            self._remember(Unit(key, address, resource, frozenset(paths)))

    def _remember(self, unit: Unit) -> None:
        self.units.append(unit)
        self._units_by_key[unit.resource, unit.key] = unit

    def of_resource(self, resource: str) -> List[Unit]:
        """The units that add to an extended resource."""
        return [unit for unit in self.units if unit.resource == resource]

    def gpu_at(self, path: str) -> str:
        """PCI address of the GPU that a device node belongs to, "" if the facts know no such node."""
        return self._by_path.get(path, "")

    def gpus_of_number(self, number: str) -> Set[str]:
        """PCI addresses of the GPUs whose device nodes have this number (major:minor in hex), empty if unknown."""
        return self._gpus_by_number.get(number, set())

    def unit_of_id(self, device_id: str, resource: str) -> Optional[Unit]:
        """The unit that a device id of the kubelet names, None if it names nothing that the node has."""
        found = re.match(self._patterns.get(resource, r"(?!)"), device_id)
        return self._units_by_key.get((resource, found.group("key"))) if found else None

    def opened_units(self, opened: FrozenSet[str], resource: str) -> List[Unit]:
        """The units of a resource whose device nodes were all opened. A unit without a device node is never opened."""
        return [unit for unit in self.of_resource(resource) if unit.nodes and unit.nodes <= opened]


def is_device_node(path: str, vendor: VendorData) -> bool:
    """Whether a path is a device node of a single GPU of the vendor."""
    return any(fnmatchcase(path, pattern) for pattern in vendor.device_globs)
