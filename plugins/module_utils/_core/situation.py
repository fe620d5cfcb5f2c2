# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that a verdict is made from: what the nodes have (expected) and what the API and the probes saw (observed)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core.devices import NodeDevices, Unit, VendorData

Json = Dict[str, Any]


@dataclass(frozen=True)
class NodeInput:
    """One host of the inventory. C(facts) is None when they could not be read, C(ledger) likewise."""

    host: str
    name: str  # of the Kubernetes node
    facts: Optional[Json]
    ledger: Optional[Json] = None
    expected_gpus: Optional[int] = None  # what the inventory promises, None if it promises nothing


@dataclass(frozen=True)
class Row:
    """One node and one extended resource that its GPUs should add to: one line of the equation."""

    node: str
    resource: str
    vendor: VendorData
    physical: int  # GPUs
    expected: int  # devices that the node should advertise
    replicas: int  # pods that share one device, 1 without sharing
    devices: NodeDevices
    advertised: Json  # name, capacity, allocatable, ... of the node's status, {} if it lists no such resource
    target: Json  # what the probe planned here, {} if it did not come here
    ledger: Json

    @property
    def subject(self) -> Dict[str, str]:
        """The check's subject."""
        return {"node": self.node, "resource": self.resource}

    def all_busy(self) -> str:
        """Who holds all devices here, so that none could be probed; "" if that is not so."""
        if not self.target.get("allocated") or self.target.get("idle") or self.target.get("reason"):
            return ""
        holders = sorted(f"{entry['namespace']}/{entry['pod']}" for entry in self.target.get("holders", []))
        return f"all devices are busy: held by {', '.join(holders)}"

    def allocations(self) -> List[Json]:
        """The kubelet's allocations of this resource on this node."""
        return [entry for entry in self.ledger.get("allocations", []) if entry["resource"] == self.resource]

    def units(self, device_ids: Iterable[str]) -> List[Unit]:
        """The units that these device ids name; ids that name nothing are left out."""
        found = (self.devices.unit_of_id(device_id, self.resource) for device_id in device_ids)
        return [unit for unit in found if unit is not None]

    def opened(self, pod: Json) -> List[Unit]:
        """The units that a probe pod opened."""
        return self.devices.opened_units(opened_nodes(pod), self.resource)


@dataclass
class Situation:
    """Inventory, cluster, plugins and probe, put side by side."""

    nodes: Sequence[NodeInput]
    capacity: Mapping[str, Json]  # node name to an entry of gpu_capacity_info
    plugins: Sequence[Json]  # entries of device_plugin_info
    probe: Json  # what gpu_allocation_probe observed
    vendors: Mapping[str, VendorData]
    replicas: Mapping[str, int] = field(default_factory=dict)
    busy: str = "skip"  # skip | fail

    def __post_init__(self) -> None:
        self.rows: List[Row] = [row for node in self.nodes for row in self._rows(node)]
        self._pods: Dict[Tuple[str, str, str], List[Json]] = {}
        for pod in self.probe.get("pods", []):
            self._pods.setdefault((pod["kind"], pod["node"], pod["resource"]), []).append(pod)

    def _rows(self, node: NodeInput) -> List[Row]:
        if node.facts is None:
            return []
        devices = NodeDevices(node.facts, self.vendors)
        listed = {entry["name"]: entry for entry in self.capacity.get(node.name, {}).get("resources", [])}
        targets = {entry["resource"]: entry for entry in self.probe.get("targets", []) if entry["node"] == node.name}
        rows = []
        for resource in sorted({gpu["resource"] for gpu in node.facts.get("gpus", []) if gpu.get("resource")}):
            gpus = [gpu for gpu in node.facts["gpus"] if gpu.get("resource") == resource and gpu["vendor"] in self.vendors]
            if not gpus:
                continue
            replicas = int(self.replicas.get(resource, 1))
            whole = max(int(node.facts.get("resources", {}).get(resource, 0)), len(gpus))
            rows.append(
                Row(node.name, resource, self.vendors[gpus[0]["vendor"]], len(gpus), whole * replicas, replicas, devices,
                    listed.get(resource, {}), targets.get(resource, {}), node.ledger or {})
            )  # fmt: skip
        return rows

    def pods(self, kind: str, node: str, resource: str = "") -> List[Json]:
        """The probe pods of one kind that were meant for a node and resource."""
        return self._pods.get((kind, node, resource), [])

    @property
    def gpus(self) -> int:
        """Physical GPUs of all nodes, of the vendors that are verified."""
        found = (gpu for node in self.nodes for gpu in (node.facts or {}).get("gpus", []))
        return sum(1 for gpu in found if gpu["vendor"] in self.vendors)


def opened_nodes(pod: Json) -> FrozenSet[str]:
    """The GPU device nodes that a probe pod opened."""
    return frozenset(entry["path"] for entry in (pod.get("report") or {}).get("devices", []) if entry["opened"])


def seen_nodes(pod: Json) -> FrozenSet[str]:
    """The GPU device nodes that a probe pod found, opened or not."""
    return frozenset(entry["path"] for entry in (pod.get("report") or {}).get("devices", []))


def has_report(pod: Json) -> bool:
    """Whether the pod runs on the node that it was meant for and reported to the end; one that has ended holds nothing."""
    reported = bool((pod.get("report") or {}).get("complete"))
    return reported and pod.get("phase") == "Running" and pod.get("placed") == pod["node"]


def pod_problem(pod: Json) -> str:
    """Why a probe pod has no complete report, one line."""
    if pod.get("placed") and pod["placed"] != pod["node"]:
        return f"pod {pod['name']} ran on {pod['placed']} instead of {pod['node']}"
    detail = ": ".join(part for part in (pod.get("reason", ""), pod.get("message", "")) if part)
    return f"pod {pod['name']} did not report ({pod.get('phase') or 'not created'}{', ' + detail if detail else ''})"


def ledger_entry(row: Row, pod: Json) -> Optional[Json]:
    """The kubelet's allocation for a probe pod, all its containers taken together; None if it has none."""
    mine = [entry for entry in row.allocations()
            if (entry.get("pod_uid") and entry["pod_uid"] == pod.get("uid"))
            or (entry.get("pod") == pod["name"] and entry.get("namespace") == pod.get("namespace"))]  # fmt: skip
    if not mine:
        return None
    return {"device_ids": sorted({device_id for entry in mine for device_id in entry["device_ids"]})}
