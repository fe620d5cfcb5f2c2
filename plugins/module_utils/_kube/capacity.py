# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU resources of all nodes: advertised, held, free. Two lists, whatever the size of the cluster; the rest is pure."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional

from ansible_collections.gpuops.k8s.plugins.module_utils._core import quantity
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import labels
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

Json = Dict[str, Any]
_LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"


def read(cluster: Cluster, vendors: Mapping[str, Vendor]) -> List[Json]:
    """One entry a node, sorted by name; see to_capacity().

    Raises:
        ApiError: Nodes or pods cannot be listed.
    """
    nodes = cluster.list("/api/v1/nodes")
    pods = cluster.list("/api/v1/pods", field_selector=_LIVE_PODS)
    return to_capacity(nodes, pods, vendors)


def to_capacity(nodes: Iterable[Json], pods: Iterable[Json], vendors: Mapping[str, Vendor]) -> List[Json]:
    """Nodes and live pods as one entry a node.

    Each has name, ready, ready_reason, unschedulable, taints, hostname_label, kubelet_version, container_runtime,
    kernel_version and resources: for each GPU
    resource that the node lists (also at 0) its name, vendor, capacity, allocatable, allocated, free (devices) and holders
    (namespace, pod, uid, quantity, probe: whether it is a pod of the allocation probe).
    """
    held: Dict[str, List[Json]] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            held.setdefault(node, []).append(pod)
    entries = [_node(node, held.get(node["metadata"]["name"], []), vendors) for node in nodes]
    return sorted(entries, key=lambda entry: str(entry["name"]))


def vendor_of(resource: str, vendors: Mapping[str, Vendor]) -> Optional[Vendor]:
    """The vendor that a resource belongs to, by its names or its prefix; None for everything else."""
    for vendor in vendors.values():
        prefix = vendor.stale_resource_prefix
        if resource in vendor.resources.values() or (prefix and resource.startswith(prefix)):
            return vendor
    return None


def requests(pod: Json) -> Dict[str, int]:
    """Devices that a pod holds, by extended resource: the sum of its containers, or its largest init container if more.

    Sidecars (init containers that restart) count beside the containers and beside the init containers after them.
    """
    spec = pod.get("spec") or {}
    total: Dict[str, int] = {}
    for container in spec.get("containers") or []:
        _add(total, _asked(container))
    sidecars: Dict[str, int] = {}
    largest: Dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, asked)
            asked = {}
        for name in {*asked, *sidecars}:
            largest[name] = max(largest.get(name, 0), asked.get(name, 0) + sidecars.get(name, 0))
    _add(total, sidecars)
    return {name: max(total.get(name, 0), largest.get(name, 0)) for name in {*total, *largest}}


def _asked(container: Json) -> Dict[str, int]:
    """Requests of one container; a limit alone stands for the request too. Only domain-prefixed, so extended, names."""
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity.count(value) for name, value in asked.items() if "/" in name}


def _add(total: Dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _holders(pods: List[Json], named: List[str]) -> Dict[str, List[Json]]:
    """Who holds devices, by resource."""
    holders: Dict[str, List[Json]] = {name: [] for name in named}
    for pod in pods if named else []:
        about = pod["metadata"]
        who = {"namespace": about.get("namespace", ""), "pod": about["name"], "uid": about.get("uid", "")}
        for name, number in requests(pod).items():
            if name in holders and number:
                holders[name].append({**who, "quantity": number, "probe": labels.is_probe(pod)})
    return holders


def _node(node: Json, pods: List[Json], vendors: Mapping[str, Vendor]) -> Json:
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    named = sorted(name for name in {*capacity, *allocatable} if vendor_of(name, vendors))
    holders = _holders(pods, named)
    about: Json = status.get("nodeInfo") or {}
    condition: Json = next((each for each in status.get("conditions") or [] if each.get("type") == "Ready"), {})
    ready = condition.get("status") == "True"
    why = ": ".join(filter(None, (condition.get("reason"), condition.get("message")))) or "unknown"
    return {
        "name": metadata["name"],
        "ready": ready,
        "ready_reason": "" if ready else why,
        "unschedulable": bool(spec.get("unschedulable", False)),
        "taints": [{key: str(each.get(key) or "") for key in ("key", "value", "effect")} for each in spec.get("taints") or []],
        "hostname_label": labels.of(node).get(labels.HOSTNAME, ""),
        "kubelet_version": about.get("kubeletVersion", ""),
        "container_runtime": about.get("containerRuntimeVersion", ""),
        "kernel_version": about.get("kernelVersion", ""),
        "resources": [_resource(name, capacity, allocatable, holders[name], vendors) for name in named],
    }


def _resource(
    name: str, capacity: Mapping[str, str], allocatable: Mapping[str, str], holders: List[Json], vendors: Mapping[str, Vendor]
) -> Json:
    vendor = vendor_of(name, vendors)
    allocated = sum(entry["quantity"] for entry in holders)
    usable = quantity.count(allocatable.get(name, "0"))
    return {
        "name": name,
        "vendor": vendor.name if vendor else "",
        "capacity": quantity.count(capacity.get(name, "0")),
        "allocatable": usable,
        "allocated": allocated,
        "free": max(0, usable - allocated),
        "holders": sorted(holders, key=lambda entry: (entry["namespace"], entry["pod"])),
    }
