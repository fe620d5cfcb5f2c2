# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bringing a vendor's device plugin to the wanted state: first what would change, then the change."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import ApiError, GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import labels, names, plugin_objects, plugin_search, rollout
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

Object = Dict[str, Any]

_FLEETING = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")


@dataclass
class Wanted:
    """The wanted state of one vendor's plugin."""

    vendor: Vendor
    namespace: str
    daemonset: Object
    nodes: Optional[List[str]] = None  # nodes to label; None leaves labels alone
    prune_nodes: bool = False  # take the label from all other nodes
    foreign: str = "refuse"  # refuse | ignore


@dataclass
class Changes:
    """What was changed, or would be, as states before and after by C(kind/name)."""

    before: Object = field(default_factory=dict)
    after: Object = field(default_factory=dict)

    def add(self, key: str, before: Optional[Object], after: Optional[Object]) -> None:
        """Note one object if the two states differ."""
        if before != after:
            self.before.update({key: before} if before is not None else {})
            self.after.update({key: after} if after is not None else {})

    @property
    def changed(self) -> bool:
        """Whether there is any."""
        return bool(self.before or self.after)


def wanted(params: Mapping[str, Any], vendor: Vendor) -> Wanted:
    """The wanted state out of the module's parameters. Raises GpuOpsError for what the API would refuse."""
    names.check_namespace(params["namespace"])
    names.check_node_names(params.get("nodes") or [])
    names.check_labels(params.get("node_selector") or {}, "the node selector")
    names.check_tolerations(params.get("tolerations") or [])
    image = names.image_reference(params.get("image") or vendor.plugin.image, params.get("version") or vendor.plugin.version)
    daemonset = plugin_objects.daemonset(
        vendor,
        params["namespace"],
        image,
        plugin_objects.arguments(vendor, params.get("options") or {}),
        image_pull_policy=params.get("image_pull_policy") or "IfNotPresent",
        image_pull_secrets=params.get("image_pull_secrets") or [],
        node_selector=params.get("node_selector"),
        tolerations=params.get("tolerations") or [],
    )
    return Wanted(
        vendor,
        params["namespace"],
        daemonset,
        nodes=params.get("nodes"),
        prune_nodes=bool(params.get("prune_nodes")),
        foreign=params.get("foreign") or "refuse",
    )


def shown(item: Optional[Mapping[str, Any]]) -> Optional[Object]:
    """An object without its status and what the server adds of its own, for comparing and for diffs."""
    if item is None:
        return None
    cleaned = copy.deepcopy({key: value for key, value in item.items() if key != "status"})
    metadata = cleaned.get("metadata") or {}
    for key in _FLEETING:
        metadata.pop(key, None)
    annotations = metadata.get("annotations") or {}
    annotations.pop("deprecated.daemonset.template.generation", None)
    if not annotations:
        metadata.pop("annotations", None)
    template = ((cleaned.get("spec") or {}).get("template") or {}).get("metadata") or {}
    template.pop("creationTimestamp", None)
    return cleaned


def _maybe(cluster: Cluster, path: str) -> Optional[Object]:
    try:
        return cluster.get(path)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def _paths(state: Wanted) -> Tuple[str, str]:
    space = f"/api/v1/namespaces/{state.namespace}"
    return space, f"/apis/apps/v1/namespaces/{state.namespace}/daemonsets/{state.vendor.plugin.name}"


def present(cluster: Cluster, state: Wanted, check_mode: bool) -> Changes:
    """Make the plugin present; in check mode only say what would change.

    Raises GpuOpsError before any change if another plugin serves this vendor, a node does not exist, or
    an object with the plugin's name is not this collection's.
    """
    space_path, path = _paths(state)
    changes = Changes()
    others = plugin_search.foreign(cluster.list(plugin_search.DAEMONSETS), state.vendor, state.namespace)
    here = f"{state.namespace}/{state.vendor.plugin.name}"
    if here in others:
        raise GpuOpsError(
            f"Installing the {state.vendor.title} device plugin: the DaemonSet {here} exists and is not ours",
            "Remove it, or choose another namespace.",
        )
    if others and state.foreign == "refuse":
        raise GpuOpsError(
            f"Installing the {state.vendor.title} device plugin: {', '.join(others)} already serves this vendor",
            "Two plugins for one resource lose GPUs: remove the other one, or set foreign: ignore if it runs on other nodes.",
        )
    relabelled = _label_changes(cluster, state)
    space, current = _maybe(cluster, space_path), _maybe(cluster, path)
    if space is not None and (space.get("metadata") or {}).get("deletionTimestamp"):
        raise GpuOpsError(
            f"Installing the {state.vendor.title} device plugin: the namespace {state.namespace} is being deleted",
            "Wait until it is gone, then try again.",
        )
    for name, before, after in relabelled:
        changes.add(f"Node/{name}", before, after)
        if not check_mode:
            _set_label(cluster, name, state.vendor, on=bool(after))
    if space is None or labels.is_owned(space):
        _apply(cluster, space_path, space, plugin_objects.namespace(state.namespace), changes, check_mode, ask=True)
    # Without its namespace the server cannot try a DaemonSet, so the prediction is what will be sent.
    _apply(cluster, path, current, state.daemonset, changes, check_mode, ask=space is not None or not check_mode)
    return changes


def _apply(
    cluster: Cluster, path: str, current: Optional[Object], body: Object, changes: Changes, check_mode: bool, *, ask: bool
) -> None:
    key = f"{body['kind']}/{body['metadata']['name']}"
    tried = cluster.apply(path, body, force=True, dry_run=True) if ask else body
    changes.add(key, shown(current), shown(tried))
    if not check_mode and shown(current) != shown(tried):
        cluster.apply(path, body, force=True)


def _label_changes(cluster: Cluster, state: Wanted) -> List[Tuple[str, Object, Object]]:
    """Nodes whose label is to change, with it before and after. Raises GpuOpsError for unknown nodes."""
    if state.nodes is None:
        return []
    label = plugin_objects.node_label(state.vendor)
    known = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in cluster.list("/api/v1/nodes")}
    unknown = sorted(set(state.nodes) - set(known))
    if unknown:
        have = ", ".join(sorted(known)[:10]) + (", …" if len(known) > 10 else "")
        raise GpuOpsError(
            f"Labelling nodes for the {state.vendor.title} device plugin: {', '.join(unknown)} is not in the cluster",
            f"Set gpu_node_name to the node's name in Kubernetes. Known nodes: {have}.",
        )
    return _relabel(known, label, set(state.nodes), state.prune_nodes)


def _relabel(
    known: Mapping[str, Mapping[str, str]], label: str, on: Set[str], prune: bool
) -> List[Tuple[str, Object, Object]]:
    found: List[Tuple[str, Object, Object]] = []
    for name, own in sorted(known.items()):
        has = {label: own[label]} if label in own else {}
        if name in on and own.get(label) != "true":
            found.append((name, has, {label: "true"}))
        elif name not in on and prune and has:
            found.append((name, has, {}))
    return found


def _set_label(cluster: Cluster, node: str, vendor: Vendor, *, on: bool) -> None:
    value = "true" if on else None
    cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {plugin_objects.node_label(vendor): value}}})


def absent(cluster: Cluster, state: Wanted, check_mode: bool) -> Changes:
    """Remove the plugin, its label and, if nothing else is in it, its namespace; only what this collection made."""
    space_path, path = _paths(state)
    changes = Changes()
    space, current = _maybe(cluster, space_path), _maybe(cluster, path)
    if current is not None and labels.is_owned(current):
        changes.add(f"DaemonSet/{state.vendor.plugin.name}", shown(current), None)
        if not check_mode:
            cluster.delete(path)
    label = plugin_objects.node_label(state.vendor)
    for node in cluster.list("/api/v1/nodes", label_selector=label):
        name = node["metadata"]["name"]
        changes.add(f"Node/{name}", {label: node["metadata"]["labels"][label]}, {})
        if not check_mode:
            _set_label(cluster, name, state.vendor, on=False)
    if space is not None and labels.is_owned(space) and _is_spare(cluster, state):
        changes.add(f"Namespace/{state.namespace}", shown(space), None)
        if not check_mode:
            cluster.delete(space_path)
    return changes


def _is_spare(cluster: Cluster, state: Wanted) -> bool:
    """Whether the namespace holds no other DaemonSet and no pod but the plugin's."""
    daemonsets = cluster.list(f"/apis/apps/v1/namespaces/{state.namespace}/daemonsets")
    pods = cluster.list(f"/api/v1/namespaces/{state.namespace}/pods")
    name = state.vendor.plugin.name
    others = [item for item in daemonsets if item["metadata"]["name"] != name or not labels.is_owned(item)]
    strangers = [pod for pod in pods if not _is_plugin_pod(pod, state.vendor)]
    return not others and not strangers


def _is_plugin_pod(pod: Mapping[str, Any], vendor: Vendor) -> bool:
    return labels.is_owned(pod) and labels.of(pod).get(labels.NAME) == vendor.plugin.name


def wait_absent(cluster: Cluster, state: Wanted, timeout: float) -> None:
    """Wait until no pod of the plugin is left. Raises GpuOpsError when C(timeout) seconds are over."""
    path = f"/api/v1/namespaces/{state.namespace}/pods"
    selector = f"{labels.NAME}={state.vendor.plugin.name},{labels.MANAGED_BY}={labels.MANAGER}"
    deadline = time.monotonic() + timeout
    while True:
        pods, version = cluster.list_with_version(path, label_selector=selector)
        if not pods:
            return
        left = deadline - time.monotonic()
        if left <= 0:
            nodes = ", ".join(sorted(rollout.node_of(pod) for pod in pods)[:5])
            raise GpuOpsError(
                f"Removing the {state.vendor.title} device plugin: {len(pods)} pods are left after {timeout:g} s (on {nodes})",
                "Is the kubelet of these nodes running?",
            )
        for event in cluster.watch(path, label_selector=selector, resource_version=version, timeout_seconds=min(2.0, left)):
            if event["type"] == "DELETED":
                break


def node_names(state: Wanted) -> Sequence[str]:
    """The nodes on which the plugin must run for the rollout to count."""
    return state.nodes or []
