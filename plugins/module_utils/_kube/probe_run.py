# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running probe pods: create, follow by watch until each is decided, read their reports, remove them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import ApiError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import labels
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import probe_objects as objects
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster

Json = Dict[str, Any]
# A container in one of these states does not start by waiting longer.
_HOPELESS = frozenset(
    ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError",
     "RunContainerError", "CrashLoopBackOff")
)  # fmt: skip
_WORKERS = 8
_STAY_PENDING = ("over", "select")  # kinds that are right when they find no place
_SLICE = 5.0  # seconds of one watch, so that deadlines are looked at in between
_UNSCHEDULABLE_GRACE = 10.0  # seconds that the scheduler may need to see what an earlier pod gave back
_LOG_PAUSE = 0.1
_SHORTEST_WATCH = 0.3


@dataclass
class Probe:
    """One probe pod: what it is for, and what came of it."""

    kind: str  # each | none | all | over | select
    node: str  # that it is meant for
    resource: str  # "" if it asks for none
    quantity: int
    body: Json
    selector: str = ""  # value of the host name label that it selects the node by
    uid: str = ""
    placed: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    report: Optional[Json] = None
    seconds: float = 0.0
    gone: bool = False
    release_seconds: Optional[float] = None
    attempts: int = 1
    user: int = 0  # that it runs as; 0 is the image's own
    decided: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.body["metadata"]["name"])

    def settle(self, reason: str = "", message: str = "") -> None:
        """No more is to come."""
        self.decided = True
        self.seconds = time.monotonic() - self.started
        self.reason, self.message = reason or self.reason, message or self.message

    def as_record(self, namespace: str) -> Json:
        """The probe as the module returns it."""
        return {
            "name": self.name, "namespace": namespace, "uid": self.uid, "kind": self.kind, "node": self.node,
            "resource": self.resource, "quantity": self.quantity, "selector": self.selector, "placed": self.placed,
            "phase": self.phase, "reason": self.reason, "message": self.message, "report": self.report,
            "seconds": round(self.seconds, 3), "gone": self.gone, "release_seconds": self.release_seconds,
            "attempts": self.attempts, "user": self.user,
        }  # fmt: skip


class Runner:
    """Runs the pods of one run in one namespace."""

    def __init__(self, cluster: Cluster, namespace: str, run_id: str, timeout: float) -> None:
        self.cluster, self.namespace, self.run_id, self.timeout = cluster, namespace, run_id, timeout
        self.pods_path = f"/api/v1/namespaces/{namespace}/pods"

    def run(self, probes: Sequence[Probe]) -> None:
        """Create all, and return when each has reported, is known to stay Pending, or has failed.

        Raises:
            ApiError: The API server cannot be reached. What it refuses is recorded in the probe.
        """
        if not probes:
            return
        deadline = time.monotonic() + self.timeout
        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(self._create, probes))
            self._follow([probe for probe in probes if not probe.decided], deadline)
            list(pool.map(lambda probe: self._read_report(probe, deadline), [p for p in probes if self._has_run(p)]))
            list(pool.map(self._explain, [probe for probe in probes if probe.reason == "Timeout"]))

    def _create(self, probe: Probe) -> None:
        probe.started = time.monotonic()
        try:
            created = self.cluster.create(self.pods_path, probe.body)
        except ApiError as error:
            if error.status == 0:
                raise
            probe.phase = "Refused"
            probe.settle(error.reason, error.body_message or error.message)
            return
        probe.uid = created["metadata"].get("uid", "")
        probe.phase = "Pending"

    def _follow(self, probes: Iterable[Probe], deadline: float) -> None:
        waiting = {probe.name: probe for probe in probes}
        while waiting and time.monotonic() < deadline:
            left = max(1.0, min(_SLICE, deadline - time.monotonic()))
            selector = objects.run_selector(self.run_id)
            # Without a resource version a watch begins with the pods as they are, so no change can be missed.
            began = time.monotonic()
            for event in self.cluster.watch(self.pods_path, label_selector=selector, timeout_seconds=left):
                probe = waiting.get(event["object"]["metadata"]["name"])
                if probe is not None:
                    observe(probe, event["type"], event["object"])
                    if probe.decided:
                        del waiting[probe.name]
                if not waiting or time.monotonic() > deadline:
                    break
            _rest(began, bool(waiting))
            for probe in list(waiting.values()):
                if is_given_up(probe, time.monotonic()):
                    probe.settle()
                    del waiting[probe.name]
        for probe in waiting.values():
            seen = f"{probe.reason or 'nothing happened'} within {self.timeout:.0f} s: {probe.message}"
            probe.settle("Timeout", seen.rstrip(": "))

    def _has_run(self, probe: Probe) -> bool:
        has_started = probe.phase in ("Running", "Succeeded", "Failed") and bool(probe.placed)
        return has_started and probe.kind not in _STAY_PENDING

    def _read_report(self, probe: Probe, deadline: float) -> None:
        """Read the log until the report is complete; the container may be a moment behind its status."""
        pause = _LOG_PAUSE
        path = f"{self.pods_path}/{probe.name}/log"
        while True:
            try:
                probe.report = objects.parse_report(self.cluster.text(path, {"tailLines": 4096}))
            except ApiError as error:
                if error.status == 0:
                    raise
                probe.message = probe.message or f"its log could not be read: {error.body_message or error.message}"
            if (probe.report or {}).get("complete"):
                probe.message = probe.message if probe.phase == "Failed" else ""
                break
            if probe.phase != "Running" or time.monotonic() + pause > deadline:
                probe.message = probe.message or "its report is not complete: opening a device may hang"
                break
            time.sleep(pause)
            pause = min(1.0, pause * 2)
        probe.seconds = time.monotonic() - probe.started

    def _explain(self, probe: Probe) -> None:
        """Add the last warning that the cluster recorded for a pod that never came up."""
        try:
            events = self.cluster.list(f"/api/v1/namespaces/{self.namespace}/events",
                                       field_selector=f"involvedObject.name={probe.name}")  # fmt: skip
        except ApiError:
            return
        warnings = [event.get("message", "") for event in events if event.get("type") == "Warning"]
        if warnings:
            probe.message = f"{probe.message} ({warnings[-1]})"

    def remove(self, probes: Sequence[Probe] = ()) -> List[str]:
        """Delete the run's pods and wait until they are gone; returns the names of those that stay."""
        return remove_pods(self.cluster, self.namespace, objects.run_selector(self.run_id), self.timeout, probes)


def observe(probe: Probe, event: str, pod: Json) -> None:
    """Take in one event of the probe's pod; the probe is decided when nothing more is to be waited for."""
    status = pod.get("status") or {}
    probe.placed = (pod.get("spec") or {}).get("nodeName") or probe.placed
    probe.phase = status.get("phase") or probe.phase
    if event == "DELETED":
        probe.settle("Deleted", "somebody deleted the pod")
    elif probe.phase in ("Failed", "Succeeded"):
        probe.settle(status.get("reason") or probe.phase, status.get("message") or _ended(status))
    elif probe.phase == "Running":
        probe.reason = probe.message = ""
        probe.settle()
    else:
        _observe_pending(probe, status)


def _observe_pending(probe: Probe, status: Json) -> None:
    waiting_to_stay = probe.kind in _STAY_PENDING
    if waiting_to_stay and probe.placed:
        probe.settle("Scheduled", f"placed on {probe.placed}")
        return
    condition: Json = next((each for each in status.get("conditions") or [] if each.get("type") == "PodScheduled"), {})
    if condition.get("status") == "False":
        probe.reason, probe.message = condition.get("reason", ""), condition.get("message", "")
        if waiting_to_stay and probe.reason == "Unschedulable":
            probe.settle()
        return
    if condition.get("status") == "True":
        probe.reason = probe.message = ""
    for container in status.get("containerStatuses") or []:
        state = (container.get("state") or {}).get("waiting") or {}
        if state.get("reason"):
            probe.reason, probe.message = state["reason"], state.get("message", "")
        if state.get("reason") in _HOPELESS:
            probe.settle()


def _ended(status: Json) -> str:
    for container in status.get("containerStatuses") or []:
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            why = ended.get("message") or ended.get("reason") or "no reason given"
            return f"container ended with exit code {ended.get('exitCode')}: {why}"
    return ""


def is_given_up(probe: Probe, now: float) -> bool:
    """Whether the scheduler has had its time and still has no place for the pod."""
    return probe.reason == "Unschedulable" and now - probe.started > _UNSCHEDULABLE_GRACE


def remove_pods(cluster: Cluster, namespace: str, selector: str, timeout: float, probes: Sequence[Probe] = ()) -> List[str]:
    """Delete the pods that carry the labels and wait until they are gone; returns the names of those that stay."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    began = time.monotonic()
    by_name = {probe.name: probe for probe in probes}
    cluster.delete_collection(path, label_selector=selector)

    def note(left: Iterable[str]) -> None:
        for name in set(by_name) - set(left):
            if not by_name[name].gone:
                by_name[name].gone, by_name[name].release_seconds = True, round(time.monotonic() - began, 3)

    def left() -> List[str]:
        return [pod["metadata"]["name"] for pod in cluster.list(path, label_selector=selector)]

    return wait_until_gone(cluster, path, selector, timeout, left, note)


def wait_until_gone(
    cluster: Cluster,
    path: str,
    selector: str,
    timeout: float,
    left: Callable[[], List[str]],
    note: Callable[[Iterable[str]], None] = lambda names: None,
) -> List[str]:
    """Follow deletions until nothing is left, or the time is over; returns what is left."""
    deadline = time.monotonic() + timeout
    while True:
        names = left()
        note(names)
        if not names or time.monotonic() > deadline:
            return names
        remaining = set(names)
        seconds = min(_SLICE, max(1.0, deadline - time.monotonic()))
        watched = time.monotonic()
        for event in cluster.watch(path, label_selector=selector, timeout_seconds=seconds):
            if event["type"] == "DELETED":
                remaining.discard(event["object"]["metadata"]["name"])
                note(remaining)
            if not remaining:
                break
        _rest(watched, bool(remaining))


def _rest(began: float, more: bool) -> None:
    """Pause where a watch that is still needed ended at once, as behind a proxy that cuts it, and not in a busy loop."""
    if more and time.monotonic() - began < _SHORTEST_WATCH:
        time.sleep(_SHORTEST_WATCH)


def split(items: Sequence[Any], size: int) -> List[Sequence[Any]]:
    """The items in lots of at most I(size)."""
    return [items[start : start + size] for start in range(0, len(items), max(1, size))]


def ensure_namespace(cluster: Cluster, name: str, timeout: float) -> Tuple[bool, bool]:
    """Make the namespace if it is missing. Returns whether it was made now, and whether it is the probe's own.

    One that is being deleted is waited for.
    """
    path = f"/api/v1/namespaces/{name}"
    try:
        found = cluster.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        cluster.create("/api/v1/namespaces", objects.namespace(name))
        return True, True
    if (found.get("metadata") or {}).get("deletionTimestamp"):
        _wait_for_namespace(cluster, name, timeout)
        cluster.create("/api/v1/namespaces", objects.namespace(name))
        return True, True
    return False, labels.is_probe(found)


def remove_namespace(cluster: Cluster, name: str, timeout: float) -> List[str]:
    """Delete the namespace if the probe made it; returns its name in a list if it is still there at the end."""
    path = f"/api/v1/namespaces/{name}"
    try:
        if not labels.is_probe(cluster.get(path)):
            return []
    except ApiError as error:
        if error.status == 404:
            return []
        raise
    cluster.delete(path)
    return _wait_for_namespace(cluster, name, timeout)


def _wait_for_namespace(cluster: Cluster, name: str, timeout: float) -> List[str]:
    def left() -> List[str]:
        found = cluster.list("/api/v1/namespaces", field_selector=f"metadata.name={name}")
        return [each["metadata"]["name"] for each in found]

    deadline = time.monotonic() + timeout
    while left() and time.monotonic() < deadline:
        seconds = max(1.0, min(_SLICE, deadline - time.monotonic()))
        watched = time.monotonic()
        for event in cluster.watch("/api/v1/namespaces", field_selector=f"metadata.name={name}", timeout_seconds=seconds):
            if event["type"] == "DELETED":
                break
        _rest(watched, True)
    return [f"namespace/{each}" for each in left()]
