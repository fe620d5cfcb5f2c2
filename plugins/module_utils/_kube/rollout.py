# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollout of a DaemonSet: done, on its way, or hopeless for a reason that is said at once."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import ApiError, GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster

Object = Dict[str, Any]

_HOPELESS = {
    "ImagePullBackOff": "Check the image's name and tag, the registry and the pull secret.",
    "ErrImageNeverPull": "Load the image on the node, or set image_pull_policy to IfNotPresent.",
    "InvalidImageName": "Correct the image's name.",
    "CreateContainerConfigError": "Something that the pod refers to is missing.",
    "CreateContainerError": "Look at the container runtime's log on the node.",
    "RunContainerError": "Look at the container runtime's log on the node.",
    "CrashLoopBackOff": "Read the log: kubectl -n {namespace} logs {pod} --previous",
}
# What the DaemonSet controller lets its pods bear by itself.
_BORNE_TAINTS = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
)
_SETTLING = 5.0  # seconds that the controller gets to see labels that were set a moment ago
_LONGEST_WATCH = 2.0
# Some plugins end once when the kubelet restarts, and come back by themselves.
_CRASHES = 2


@dataclass
class Progress:
    """How far a rollout is; C(failure) is why it cannot succeed, C(waiting) what it waits for."""

    done: bool = False
    failure: str = ""
    hint: str = ""
    waiting: List[str] = field(default_factory=list)
    crashed: str = ""  # pod whose log tells more


def pods_of(daemonset: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    """The pods that a DaemonSet owns, by name of their node."""
    uid = (daemonset.get("metadata") or {}).get("uid")
    found = [
        pod
        for pod in pods
        if uid and any(owner.get("uid") == uid for owner in (pod.get("metadata") or {}).get("ownerReferences") or [])
    ]
    return sorted(found, key=lambda pod: str((pod.get("spec") or {}).get("nodeName") or ""))


def describe_pod(pod: Mapping[str, Any]) -> Object:
    """A pod as C(device_plugin_info) shows it: name, node, phase, ready, restarts, reason."""
    status = pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    conditions = {item.get("type"): item for item in status.get("conditions") or []}
    return {
        "name": (pod.get("metadata") or {}).get("name"),
        "node": node_of(pod),
        "phase": status.get("phase") or "Unknown",
        "ready": (conditions.get("Ready") or {}).get("status") == "True",
        "restarts": sum(int(item.get("restartCount") or 0) for item in statuses),
        "reason": pod_reason(pod),
    }


def node_of(pod: Mapping[str, Any]) -> str:
    """The node of a pod, also of one that is not scheduled yet: a DaemonSet's pods are made for one node."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or []:
        for expression in term.get("matchFields") or []:
            if expression.get("key") == "metadata.name" and expression.get("values"):
                return str(expression["values"][0])
    return ""


def pod_reason(pod: Mapping[str, Any]) -> str:
    """Why a pod is not ready, "" if it is."""
    status = pod.get("status") or {}
    for item in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
        state = item.get("state") or {}
        waiting = state.get("waiting") or {}
        if waiting.get("reason"):
            return _with_message(waiting, item)
        ended = state.get("terminated") or {}
        if ended and item.get("name"):
            return f"{ended.get('reason') or 'Terminated'}: exit code {ended.get('exitCode')}"
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason') or 'Unschedulable'}: {condition.get('message') or ''}".strip(": ")
    if status.get("reason"):
        return f"{status['reason']}: {status.get('message') or ''}".strip(": ")
    ready: Mapping[str, Any] = next((item for item in status.get("conditions") or [] if item.get("type") == "Ready"), {})
    return "" if ready.get("status") == "True" else str(ready.get("reason") or status.get("phase") or "no status yet")


def _with_message(waiting: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    text = str(waiting["reason"])
    last = (item.get("lastState") or {}).get("terminated") or {}
    if last:
        text += f": exit code {last.get('exitCode')}"
        if last.get("message"):
            text += f", {str(last['message']).strip().splitlines()[-1].strip()}"
    elif waiting.get("message"):
        text += f": {waiting['message']}"
    return text


def _waiting_reason(pod: Mapping[str, Any]) -> str:
    status = pod.get("status") or {}
    for item in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
        reason = ((item.get("state") or {}).get("waiting") or {}).get("reason")
        if reason == "CrashLoopBackOff" and int(item.get("restartCount") or 0) < _CRASHES:
            continue
        if reason in _HOPELESS:
            return str(reason)
    return ""


def _is_current(daemonset: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a pod is of the newest template; one of an older template may be broken and is replaced."""
    wanted = ((daemonset.get("metadata") or {}).get("annotations") or {}).get("deprecated.daemonset.template.generation")
    found = ((pod.get("metadata") or {}).get("labels") or {}).get("pod-template-generation")
    return not wanted or not found or wanted == found


def judge(daemonset: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> Progress:
    """How far the rollout of a DaemonSet is, by its status and its pods."""
    status = daemonset.get("status") or {}
    desired = int(status.get("desiredNumberScheduled") or 0)
    seen = int(status.get("observedGeneration") or 0) >= int((daemonset.get("metadata") or {}).get("generation") or 1)
    if not seen:
        return Progress(waiting=["the DaemonSet controller has not taken the change up yet"])
    own = [pod for pod in pods_of(daemonset, pods) if _is_current(daemonset, pod)]
    for pod in own:
        reason = _waiting_reason(pod)
        if reason:
            metadata = pod.get("metadata") or {}
            name = str(metadata.get("name"))
            image = ", ".join(str(item.get("image")) for item in (pod.get("spec") or {}).get("containers") or [])
            text = f"pod {name} on node {node_of(pod)}: {pod_reason(pod)}"
            text += f" (image {image})" if "Image" in reason else ""
            hint = _HOPELESS[reason].format(namespace=metadata.get("namespace"), pod=name)
            return Progress(failure=text, hint=hint, crashed=name if reason == "CrashLoopBackOff" else "")
    updated, available = int(status.get("updatedNumberScheduled") or 0), int(status.get("numberAvailable") or 0)
    if desired and updated >= desired and available >= desired:
        return Progress(done=True)
    waiting = [f"node {node_of(pod)}: {pod_reason(pod)}" for pod in own if pod_reason(pod)]
    return Progress(waiting=waiting or [f"{available} of {desired} pods available, {updated} of the newest template"])


def excluded_nodes(daemonset: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> Dict[str, str]:
    """Node name to why the DaemonSet does not run there, for nodes that it leaves out."""
    spec = daemonset["spec"]["template"]["spec"]
    found: Dict[str, str] = {}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        missing = [f"{key}={value}" for key, value in (spec.get("nodeSelector") or {}).items() if labels.get(key) != value]
        taints = [taint for taint in (node.get("spec") or {}).get("taints") or [] if not _bears(spec, taint)]
        if missing:
            found[node["metadata"]["name"]] = f"without label {', '.join(missing)}"
        elif taints:
            words = ", ".join(f"{taint['key']}={taint.get('value') or ''}:{taint['effect']}" for taint in taints)
            found[node["metadata"]["name"]] = f"taint {words} is not tolerated"
    return found


def _bears(spec: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if taint.get("effect") == "PreferNoSchedule" or taint.get("key") in _BORNE_TAINTS:
        return True
    for item in spec.get("tolerations") or []:
        fits_effect = not item.get("effect") or item["effect"] == taint.get("effect")
        fits_key = not item.get("key") or item["key"] == taint.get("key")
        fits_value = item.get("operator") == "Exists" or (item.get("value") or "") == (taint.get("value") or "")
        if fits_effect and fits_key and fits_value:
            return True
    return False


def wait(cluster: Cluster, namespace: str, name: str, timeout: float, required: Iterable[str] = ()) -> Object:
    """Wait until every pod of the DaemonSet is available; returns the DaemonSet.

    C(required) are nodes on which it must run. Raises GpuOpsError as soon as the rollout cannot succeed,
    or when C(timeout) seconds are over, with what it waited for.
    """
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}"
    pods_path = f"/api/v1/namespaces/{namespace}/pods"
    began = time.monotonic()
    what = f"Waiting for the DaemonSet {namespace}/{name}"
    needed = set(required)
    while True:
        daemonset = cluster.get(path)
        selector = ",".join(f"{key}={value}" for key, value in daemonset["spec"]["selector"]["matchLabels"].items())
        pods, version = cluster.list_with_version(pods_path, label_selector=selector)
        progress = judge(daemonset, pods)
        elapsed = time.monotonic() - began
        if progress.done and needed <= {node_of(pod) for pod in pods_of(daemonset, pods)}:
            return daemonset
        if progress.failure:
            line = _last_log_line(cluster, namespace, progress.crashed)
            raise GpuOpsError(f"{what}: {progress.failure}{line}", progress.hint)
        if elapsed > _SETTLING:
            _fail_early(cluster, daemonset, pods, needed, what)
        if elapsed >= timeout:
            reasons = "; ".join(progress.waiting[:5]) or "its pods do not run on all nodes yet"
            text = f"{what}: not complete after {timeout:g} s: {reasons}"
            raise GpuOpsError(text, "Raise wait_timeout if it only needs longer.")
        pause = min(_LONGEST_WATCH, max(0.1, timeout - elapsed))
        # The DaemonSet's own numbers change with its pods; a short watch also looks at it again.
        for _event in cluster.watch(pods_path, label_selector=selector, resource_version=version, timeout_seconds=pause):
            break


def _fail_early(cluster: Cluster, daemonset: Mapping[str, Any], pods: List[Object], needed: Iterable[str], what: str) -> None:
    desired = int((daemonset.get("status") or {}).get("desiredNumberScheduled") or 0)
    own = pods_of(daemonset, pods)
    here = {node_of(pod) for pod in own}
    absent = [node for node in needed if node not in here]
    if desired == 0 or absent:
        excluded = excluded_nodes(daemonset, cluster.list("/api/v1/nodes"))
        reasons = [f"node {name} is {why}" if why.startswith("without") else f"node {name}: {why}"
                   for name, why in sorted(excluded.items()) if not absent or name in absent]  # fmt: skip
        if reasons:
            shown = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
            raise GpuOpsError(f"{what}: it does not run where it should: {shown}", "Set the label, or add a toleration.")
    for subject in [daemonset, *[pod for pod in own if pod_reason(pod)]]:
        message = _warning(cluster, subject)
        if message:
            name = f"pod {subject['metadata']['name']} on node {node_of(subject)}" if subject is not daemonset else "its pods"
            raise GpuOpsError(f"{what}: {name}: {message}", "Mend the cause; the rollout then goes on by itself.")


_TELLING_EVENTS = ("FailedCreate", "FailedMount", "FailedCreatePodSandBox", "FailedAttachVolume")


def _warning(cluster: Cluster, item: Mapping[str, Any]) -> Optional[str]:
    """The newest event that tells why an object does not get on, None without one."""
    metadata = item["metadata"]
    try:
        events = cluster.list(
            f"/api/v1/namespaces/{metadata['namespace']}/events",
            field_selector=f"involvedObject.uid={metadata.get('uid')},type=Warning",
        )
    except ApiError:
        return None  # reading events is a help, not a need
    telling = [event for event in events if event.get("reason") in _TELLING_EVENTS and int(event.get("count") or 1) > 1]
    telling.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return f"{telling[-1]['reason']}: {telling[-1].get('message') or ''}" if telling else None


def _last_log_line(cluster: Cluster, namespace: str, pod: str) -> str:
    if not pod:
        return ""
    try:
        text = cluster.text(f"/api/v1/namespaces/{namespace}/pods/{pod}/log", {"previous": "true", "tailLines": 5})
    except ApiError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"; last line of its log: {lines[-1][:300]}" if lines else ""
