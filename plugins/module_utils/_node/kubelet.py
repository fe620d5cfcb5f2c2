# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""C(KubeletLedger): what the kubelet's device manager has registered and given out on this node."""

from __future__ import annotations

import json
import os
import stat
import time
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import DeviceAllocation, KubeletLedger, Problem, problem
from ansible_collections.gpuops.k8s.plugins.module_utils._node import grpc_unary, protobuf

_SERVICE = "/v1.PodResourcesLister/"
_RESOURCE_EXHAUSTED, _UNAVAILABLE = 8, 14
_ATTEMPTS = 4

Registered = Dict[str, List[str]]


def collect(
    kubelet_root: str = "/var/lib/kubelet", resources: Optional[Iterable[str]] = None, timeout: float = 10
) -> KubeletLedger:
    """Read the books of the kubelet below C(kubelet_root); C(timeout) is in seconds for each call.

    C(resources) limits the answer to these resource names. What cannot be read becomes a problem; only
    when neither the API nor the checkpoint can be read is C(source) "none".
    """
    folder = os.path.join(kubelet_root, "device-plugins")
    ledger: KubeletLedger = {
        "source": "none", "sockets": [], "kubelet_socket": False, "registered": {}, "allocations": [], "problems": [],
    }  # fmt: skip
    ledger["sockets"], ledger["kubelet_socket"] = _sockets(folder, ledger["problems"])
    path = os.path.join(folder, "kubelet_internal_checkpoint")
    checkpoint = _read_checkpoint(path, ledger["problems"])
    live = _ask(os.path.join(kubelet_root, "pod-resources", "kubelet.sock"), timeout, ledger["problems"])
    if live is not None:
        ledger["source"], ledger["allocations"] = "podresources", live[0]
    elif checkpoint is not None:
        ledger["source"], ledger["allocations"] = "checkpoint", checkpoint[0]
    if checkpoint is not None:
        ledger["registered"] = checkpoint[1]
        if live is not None:
            ledger["problems"].extend(_differences(checkpoint[1], live[1], path))
    elif live is not None:
        ledger["registered"] = live[1]
    _keep(ledger, set(resources) if resources is not None else None)
    return ledger


def _keep(ledger: KubeletLedger, wanted: Optional[Set[str]]) -> None:
    if wanted is None:
        return
    ledger["registered"] = {name: ids for name, ids in ledger["registered"].items() if name in wanted}
    ledger["allocations"] = [item for item in ledger["allocations"] if item["resource"] in wanted]


def _sockets(folder: str, problems: List[Problem]) -> Tuple[List[str], bool]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        hint = "Is a kubelet set up on this node?"
        problems.append(problem("folder_unreadable", folder, error.strerror or str(error), hint))
        return [], False
    found = [name for name in names if _is_socket(os.path.join(folder, name))]
    return [name for name in found if name != "kubelet.sock"], "kubelet.sock" in found


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _read_checkpoint(path: str, problems: List[Problem]) -> Optional[Tuple[List[DeviceAllocation], Registered]]:
    try:
        with open(path, encoding="utf-8") as stream:
            return parse_checkpoint(json.load(stream))
    except OSError as error:
        problems.append(problem("checkpoint_unreadable", path, error.strerror or str(error), "Is this user root?"))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        hint = "The kubelet starts with empty books when its checkpoint is broken; restart the GPU pods of this node."
        problems.append(problem("checkpoint_broken", path, f"not a device manager checkpoint ({error})", hint))
    return None


def parse_checkpoint(document: Dict[str, Any]) -> Tuple[List[DeviceAllocation], Registered]:
    """Allocations and registered (healthy) devices of a device manager checkpoint.

    Raises TypeError, AttributeError, KeyError or ValueError if the document has another shape.
    """
    data = document["Data"]
    allocations: List[DeviceAllocation] = []
    for entry in data.get("PodDeviceEntries") or []:
        ids: Set[str] = set()
        for per_numa_node in (entry["DeviceIDs"] or {}).values():
            ids.update(per_numa_node or [])
        owner = ("", "", entry["ContainerName"], entry["ResourceName"])
        allocations.append(_allocation(owner, ids, pod_uid=entry["PodUID"]))
    registered = {name: sorted(set(ids or [])) for name, ids in (data.get("RegisteredDevices") or {}).items()}
    return sorted(allocations, key=_order), dict(sorted(registered.items()))


def _ask(path: str, timeout: float, problems: List[Problem]) -> Optional[Tuple[List[DeviceAllocation], Registered]]:
    if not _is_socket(path):
        problems.append(problem("podresources_absent", path, "there is no such socket", "Is the kubelet running?"))
        return None
    try:
        listed = parse_pod_resources(_call(path, "List", timeout))
        return listed, parse_allocatable(_call(path, "GetAllocatableResources", timeout))
    except grpc_unary.GrpcError as error:
        problems.append(problem("podresources_failed", path, error.message, error.hint))
    except ValueError as error:
        message = f"the answer cannot be read: {error}"
        problems.append(problem("podresources_failed", path, message, "Report the kubelet's version."))
    return None


def _call(path: str, method: str, timeout: float) -> bytes:
    """One call; the kubelet's rate limit and its restart are waited out a few times."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return grpc_unary.call(path, _SERVICE + method, timeout=timeout)
        except grpc_unary.GrpcError as error:
            if error.code not in (_RESOURCE_EXHAUSTED, _UNAVAILABLE):
                raise
            time.sleep(0.3 * attempt)
    return grpc_unary.call(path, _SERVICE + method, timeout=timeout)


def parse_pod_resources(data: bytes) -> List[DeviceAllocation]:
    """Allocations of a ListPodResourcesResponse: one entry for each container and resource with devices.

    Raises ValueError if the bytes are broken.
    """
    found: Dict[Tuple[str, str, str, str], Set[str]] = {}
    for pod_bytes in protobuf.messages(protobuf.fields(data), 1):
        pod = protobuf.fields(pod_bytes)
        for container_bytes in protobuf.messages(pod, 3):
            container = protobuf.fields(container_bytes)
            # The kubelet repeats an entry for each id and NUMA node, so ids are gathered by resource.
            for resource, ids in _devices(protobuf.messages(container, 2)).items():
                key = (protobuf.string(pod, 2), protobuf.string(pod, 1), protobuf.string(container, 1), resource)
                found.setdefault(key, set()).update(ids)
    return sorted((_allocation(owner, ids) for owner, ids in found.items()), key=_order)


def _allocation(owner: Tuple[str, str, str, str], ids: Set[str], pod_uid: str = "") -> DeviceAllocation:
    namespace, pod, container, resource = owner
    return {
        "pod_uid": pod_uid,
        "pod": pod,
        "namespace": namespace,
        "container": container,
        "resource": resource,
        "device_ids": sorted(ids),
    }


def parse_allocatable(data: bytes) -> Registered:
    """Resource to sorted healthy device ids of an AllocatableResourcesResponse. Raises ValueError if it is broken."""
    found = _devices(protobuf.messages(protobuf.fields(data), 1))
    return {name: sorted(ids) for name, ids in sorted(found.items())}


def _devices(encoded: List[bytes]) -> Dict[str, Set[str]]:
    found: Dict[str, Set[str]] = {}
    for data in encoded:
        device = protobuf.fields(data)
        found.setdefault(protobuf.string(device, 1), set()).update(protobuf.strings(device, 2))
    return found


def _differences(written: Registered, live: Registered, path: str) -> List[Problem]:
    problems: List[Problem] = []
    for name in sorted(set(written) | set(live)):
        if set(written.get(name, [])) != set(live.get(name, [])):
            message = (
                f"{name}: the checkpoint has {len(written.get(name, []))} healthy devices, "
                f"the running kubelet {len(live.get(name, []))}, or others"
            )
            hint = "A device plugin went away or changes its devices."
            if not live.get(name):
                hint += " The kubelet also lists none when the plugin sends an empty NUMA topology."
            problems.append(problem("ledger_differs", path, message, hint))
    return problems


def _order(item: DeviceAllocation) -> Tuple[str, str, str, str, str]:
    return (item["namespace"], item["pod"], item["pod_uid"], item["container"], item["resource"])
