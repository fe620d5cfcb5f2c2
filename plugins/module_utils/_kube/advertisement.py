# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting until nodes advertise a vendor's resource: a plugin whose pod is ready has not yet registered with the kubelet."""

from __future__ import annotations

import time
from typing import Any, Iterable, Mapping, Set

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._core.quantity import parse
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

_NODES = "/api/v1/nodes"
_LONGEST_WATCH = 10.0


def is_advertised(node: Mapping[str, Any], vendor: Vendor) -> bool:
    """Whether a node offers at least one device under any of the vendor's resource names."""
    prefix = vendor.stale_resource_prefix
    for name, quantity in ((node.get("status") or {}).get("allocatable") or {}).items():
        belongs = name in vendor.resources.values() or (prefix and name.startswith(prefix))
        if belongs and parse(quantity) > 0:
            return True
    return False


def wait(cluster: Cluster, vendor: Vendor, nodes: Iterable[str], timeout: float) -> None:
    """Wait until each of the nodes offers at least one device of the vendor.

    Raises GpuOpsError when C(timeout) seconds are over, with the nodes that offer none.
    """
    waiting = set(nodes)
    deadline = time.monotonic() + timeout
    while waiting:
        items, version = cluster.list_with_version(_NODES)
        waiting -= {item["metadata"]["name"] for item in items if is_advertised(item, vendor)}
        left = deadline - time.monotonic()
        if waiting and left <= 0:
            shown = ", ".join(sorted(waiting)[:5]) + (f" and {len(waiting) - 5} more" if len(waiting) > 5 else "")
            raise GpuOpsError(
                f"Waiting for {vendor.title} devices: the plugin runs on {shown}, no device is offered after {timeout:g} s",
                f"Read the plugin's log there, and gpu_facts: are the GPUs bound to {' or '.join(vendor.resources)}?",
            )
        if waiting:
            _watch(cluster, vendor, waiting, version, min(_LONGEST_WATCH, left))


def _watch(cluster: Cluster, vendor: Vendor, waiting: Set[str], version: str, seconds: float) -> None:
    """Take nodes that begin to offer devices out of I(waiting), until none is left or the time is up."""
    until = time.monotonic() + seconds
    for event in cluster.watch(_NODES, resource_version=version, timeout_seconds=seconds):
        node = event.get("object") or {}
        if event.get("type") != "DELETED" and is_advertised(node, vendor):
            waiting.discard((node.get("metadata") or {}).get("name"))
        if not waiting or time.monotonic() >= until:
            return
