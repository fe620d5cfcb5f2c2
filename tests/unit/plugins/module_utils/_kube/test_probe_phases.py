# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The allocation probe against a small API server with a scheduler and kubelets of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpuops.k8s.plugins.module_utils._core import verdict
from ansible_collections.gpuops.k8s.plugins.module_utils._core.situation import NodeInput, Situation
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import capacity
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster, ConnectionOptions
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.probe_phases import Prober, Settings
from tests.fixtures.fake_api import FakeApi, RefusedError
from tests.fixtures.right_cluster import ABOUT, KNOWN, Right, device_id

Json = dict[str, Any]
NAMESPACE = "gpuops-verification"


class Machines:
    """Scheduler and kubelets: places pods on nodes by name or label, gives out devices, writes the pods' logs."""

    def __init__(self, api: FakeApi, right: Right) -> None:
        self.api, self.right = api, right
        self.free = {name: list(node["facts"]["gpus"]) for name, node in right.nodes.items()}
        self.held: dict[str, tuple[str, list[Json]]] = {}
        self.lock = threading.RLock()
        self.pull_fails = False
        for name, node in right.nodes.items():
            offered = {resource: str(count) for resource, count in node["facts"]["resources"].items()}
            status = {"capacity": offered, "allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]}
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            api.add("/api/v1/nodes", {"metadata": metadata, "status": status})
        api.on_change.append(self.changed)
        api.admit.append(admit)

    def changed(self, event: str, path: str, pod: Json) -> None:
        if "/pods/" not in path:
            return
        with self.lock:
            name = pod["metadata"]["name"]
            if event == "DELETED" and name in self.held:
                node, devices = self.held.pop(name)
                self.free[node] += devices
            elif event == "ADDED":
                self.place(path, pod)

    def place(self, path: str, pod: Json) -> None:
        spec = pod["spec"]
        node = (spec.get("nodeSelector") or {}).get("kubernetes.io/hostname")
        if not node:
            (required,) = spec["affinity"]["nodeAffinity"].values()
            node = required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        limits = {key: int(value) for key, value in spec["containers"][0]["resources"]["limits"].items() if "/" in key}
        for resource, number in limits.items():
            if len([each for each in self.free[node] if each["resource"] == resource]) < number:
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                             "message": f"0/3 nodes are available: 1 Insufficient {resource}."}  # fmt: skip
                self.api.put(path, {**pod, "status": {"phase": "Pending", "conditions": [condition]}})
                return
        spec["nodeName"] = node
        given = self.free[node][: sum(limits.values())]
        self.free[node] = self.free[node][len(given) :]
        self.held[pod["metadata"]["name"]] = (node, given)
        self.run(path, pod, given)

    def run(self, path: str, pod: Json, given: list[Json]) -> None:
        if self.pull_fails:
            waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
            self.api.put(path, {**pod, "status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}})
            return
        lines = ["gpuops-probe 1"]
        for record in given:
            lines += [f"device opened {node}" for node in record["device_nodes"]]
            lines += [f"control opened {node}" for node in KNOWN[record["vendor"]].required_nodes]
        self.api.logs[f"{NAMESPACE}/{pod['metadata']['name']}"] = "\n".join([*lines, "end"]) + "\n"
        self.api.put(path, {**pod, "status": {"phase": "Running"}})

    def ledgers(self) -> dict[str, Json]:
        """The kubelets' books as they are now."""
        books = {name: {**node["ledger"], "allocations": []} for name, node in self.right.nodes.items()}
        for pod, (node, given) in self.held.items():
            if given:
                books[node]["allocations"].append(
                    {"pod_uid": "", "pod": pod, "namespace": NAMESPACE, "container": "probe", "resource": given[0]["resource"],
                     "device_ids": [device_id(record) for record in given]}
                )  # fmt: skip
        return books


def admit(method: str, path: str, body: Json) -> None:
    """Extended resources as a real API server checks them."""
    if method != "POST" or not path.endswith("/pods"):
        return
    resources = body["spec"]["containers"][0]["resources"]
    for name, value in resources["limits"].items():
        if "/" not in name:
            continue
        if not value.isdigit():
            raise RefusedError(422, f"Pod is invalid: {name}: Invalid value: {value}: must be an integer")
        if resources["requests"].setdefault(name, value) != value:
            raise RefusedError(422, f"Pod is invalid: must be equal to {name} limit of {value}")


@pytest.fixture
def right() -> Right:
    return Right({"nv-1": ("nvidia", 2), "acme-1": ("acme", 2), "cpu-1": ("", 0)})


@pytest.fixture
def machines(right: Right) -> Iterator[Machines]:
    with FakeApi() as api:
        yield Machines(api, right)


def prober(machines: Machines, run_id: str = "r1", timeout: float = 5) -> Prober:
    cluster = Cluster.connect(ConnectionOptions(host=machines.api.url, api_key="x"))
    return Prober(cluster, Settings(NAMESPACE, "probe:1", run_id, parallelism=2, timeout=timeout), KNOWN)


def nodes(right: Right, ledgers: Json | None = None) -> list[NodeInput]:
    return [NodeInput(name, name, node["facts"], (ledgers or {}).get(name)) for name, node in right.nodes.items()]


def test_hold_and_release_prove_a_cluster_in_order(machines: Machines, right: Right) -> None:
    probe = prober(machines)
    offered = {entry["name"]: entry for entry in capacity.read(probe.cluster, KNOWN)}
    held = probe.hold(nodes(right), {})
    assert len([pod for pod in held["pods"] if pod["kind"] == "each"]) == 4
    ledgers = machines.ledgers()
    released = probe.release(held)
    evidence = verdict.build(Situation(nodes(right, ledgers), offered, right.plugins, released, KNOWN), ABOUT)
    assert evidence["reasons"] == []
    assert evidence["verdict"] == "pass"
    assert machines.api.items("/api/v1/pods") == []
    assert f"/api/v1/namespaces/{NAMESPACE}" not in machines.api.objects


def test_no_device_of_a_pod_of_others_is_touched(machines: Machines, right: Right) -> None:
    machines.api.add("/api/v1/namespaces", {"metadata": {"name": "team"}})
    foreign = {"metadata": {"name": "train"}, "spec": {"nodeSelector": {"kubernetes.io/hostname": "nv-1"}, "containers": [
        {"resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}}]}}  # fmt: skip
    machines.api.add("/api/v1/namespaces/team/pods", foreign)
    released = prober(machines).release(prober(machines).hold(nodes(right), {}))
    target = next(each for each in released["targets"] if each["node"] == "nv-1")
    assert (target["idle"], target["allocated"], target["holders"][0]["pod"]) == (1, 1, "train")
    assert [pod["metadata"]["name"] for pod in machines.api.items("/api/v1/pods")] == ["train"]


def test_an_image_that_cannot_be_pulled_ends_early_with_the_reason(machines: Machines, right: Right) -> None:
    machines.pull_fails = True
    held = prober(machines, timeout=60).hold(nodes(right), {})
    assert {pod["reason"] for pod in held["pods"]} == {"ImagePullBackOff"}
    assert max(pod["seconds"] for pod in held["pods"]) < 30


def test_leftovers_of_an_interrupted_run_are_removed_first(machines: Machines, right: Right) -> None:
    first = prober(machines, "old").hold(nodes(right), {})
    second = prober(machines, "new").hold(nodes(right), {})
    assert len(second["removed_leftovers"]) == len(first["pods"])
    assert {pod["phase"] for pod in second["pods"]} == {"Running"}
    assert prober(machines).remove() == []


def test_a_pod_of_an_earlier_run_that_stays_is_no_use_of_the_gpu(machines: Machines, right: Right) -> None:
    """Its device was never proven, so the run that finds it must not end green by leaving the device out."""
    probe = prober(machines, "new", timeout=1)
    probe.cluster.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    taker = next(target for target in prober(machines, "old").hold(nodes(right), {})["pods"] if target["node"] == "nv-1")
    machines.api.keep(f"/api/v1/namespaces/{NAMESPACE}/pods/{taker['name']}")
    offered = {entry["name"]: entry for entry in capacity.read(probe.cluster, KNOWN)}
    held = probe.hold(nodes(right), {})
    target = next(each for each in held["targets"] if each["node"] == "nv-1")
    assert taker["name"] in target["reason"]
    released = probe.release({**held, "pods": held["pods"]})
    evidence = verdict.build(Situation(nodes(right, machines.ledgers()), offered, right.plugins, released, KNOWN), ABOUT)
    assert evidence["verdict"] == "fail"
    failed = {(check["id"], check["node"]) for check in evidence["checks"] if check["status"] == "fail"}
    assert ("ASG-EACH", "nv-1") in failed


def test_a_namespace_of_others_stays(machines: Machines, right: Right) -> None:
    machines.api.add("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    prober(machines).release(prober(machines).hold(nodes(right), {}))
    assert f"/api/v1/namespaces/{NAMESPACE}" in machines.api.objects


def test_what_the_api_refuses_is_recorded(machines: Machines, right: Right) -> None:
    machines.api.refuse("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", 403, "pods is forbidden")
    held = prober(machines).hold(nodes(right), {})
    assert {pod["phase"] for pod in held["pods"]} == {"Refused"}
    evidence = verdict.build(Situation(nodes(right), {}, [], held, KNOWN), ABOUT)
    assert evidence["verdict"] == "fail"


def test_pods_use_the_runtime_class_of_their_resource_and_one_is_not_root(machines: Machines, right: Right) -> None:
    settings = Settings(
        NAMESPACE, "probe:1", "r1", timeout=5, runtime_classes={"nvidia.com/gpu": "nvidia"}, user=65534, groups=(109, 44)
    )
    probe = Prober(Cluster.connect(ConnectionOptions(host=machines.api.url, api_key="x")), settings, KNOWN)
    offered = {entry["name"]: entry for entry in capacity.read(probe.cluster, KNOWN)}
    held = probe.hold(nodes(right), {})
    ledgers = machines.ledgers()
    released = probe.release(held)
    made = [body for _method, _path, query, body in machines.api.calls("POST", ".*/pods") if "dryRun" not in query]
    classes = {
        (
            next(iter(set(pod["spec"]["containers"][0]["resources"]["limits"]) - {"memory"}), ""),
            pod["spec"].get("runtimeClassName"),
        )
        for pod in made
    }
    (acme,) = set(KNOWN["acme"].resources.values())
    assert {("nvidia.com/gpu", "nvidia"), (acme, None), ("", None)} <= classes
    assert ("nvidia.com/gpu", None) not in classes
    users = [pod["spec"].get("securityContext") for pod in made if pod["spec"].get("securityContext")]
    assert len(users) == 2  # the pods that take all devices of nv-1 and acme-1
    assert users[0] == {"runAsNonRoot": True, "runAsUser": 65534, "runAsGroup": 65534, "supplementalGroups": [109, 44]}
    evidence = verdict.build(Situation(nodes(right, ledgers), offered, right.plugins, released, KNOWN), ABOUT)
    assert evidence["verdict"] == "pass", evidence["reasons"]
    as_user = [check for check in evidence["checks"] if check["id"] == "ASG-OPEN" and "user 65534" in check["device"]]
    assert {(check["node"], check["status"]) for check in as_user} == {("nv-1", "pass"), ("acme-1", "pass")}
