# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the allocation probe does, phase by phase: hold, release, remove.

hold      one pod for every idle device of every node, all at once, and one pod without a request on each node; they report
          and go on holding, so that the node's own books can be read meanwhile
release   the holders go; then one pod takes all devices of a node, one asks for one too many, one asks where there is none
remove    everything that carries the probe's labels goes
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import ApiError
from ansible_collections.gpuops.k8s.plugins.module_utils._core.situation import NodeInput, Row, Situation
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import capacity, probe_run
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import probe_objects as objects
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.probe_run import Probe, Runner
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

Json = Dict[str, Any]
_ATTEMPTS = 3  # the kubelet frees devices lazily, so the first pod after a release may be refused by it


_MOST_BEYOND = 8


@dataclass(frozen=True)
class Settings:
    """How to probe. Times in seconds."""

    namespace: str
    image: str
    run_id: str
    parallelism: int = 50  # nodes that are probed at the same time
    timeout: float = 120.0  # for each lot of nodes
    deadline: int = 900  # after which a probe pod ends by itself
    runtime_classes: Mapping[str, str] = field(default_factory=dict)  # resource to the RuntimeClass of its pods
    user: int = 0  # that the pod which takes all devices runs as; 0 leaves the image's own
    groups: Sequence[int] = ()  # of the node, that this user belongs to


class Prober:
    """One run of the probe against one cluster."""

    def __init__(self, cluster: Cluster, settings: Settings, vendors: Mapping[str, Vendor]) -> None:
        self.cluster, self.settings, self.vendors = cluster, settings, vendors
        self.runner = Runner(cluster, settings.namespace, settings.run_id, settings.timeout)
        self._arguments = objects.script_arguments(vendors)
        self._made = 0

    def hold(self, nodes: Sequence[NodeInput], replicas: Mapping[str, int]) -> Json:
        """Phase hold; returns the probe's observations so far, see the module's documentation.

        Raises:
            ApiError: Nodes, pods or the namespace cannot be read or made, or the server is not reached.
        """
        began = time.time()
        leftovers = self.sweep()
        found = {entry["name"]: entry for entry in capacity.read(self.cluster, self.vendors)}
        probe_run.ensure_namespace(self.cluster, self.settings.namespace, self.settings.timeout)
        situation = Situation(nodes, found, [], {}, self.vendors, replicas)
        targets = [to_target(row, found.get(row.node)) for row in situation.rows]
        usable = [node.name for node in nodes if not not_probed_reason(found.get(node.name))]
        probes = [probe for target in targets for probe in self._holders(target, found)]
        probes += [self._probe("none", name, "", 0, found[name]["taints"]) for name in dict.fromkeys(usable)]
        self._run_in_lots(probes)
        return {
            "run_id": self.settings.run_id, "namespace": self.settings.namespace, "image": self.settings.image,
            "runtime_classes": dict(self.settings.runtime_classes), "user": self.settings.user,
            "groups": list(self.settings.groups),
            "started": began, "removed_leftovers": leftovers, "targets": targets,
            "admission": [each for resource in sorted({row.resource for row in situation.rows})
                          for each in self._admission(resource)],
            "pods": [probe.as_record(self.settings.namespace) for probe in probes], "residue": None,
        }  # fmt: skip

    def release(self, held: Json) -> Json:
        """Phase release; returns the observations of both phases together."""
        found = {entry["name"]: entry for entry in capacity.read(self.cluster, self.vendors)}
        self._made = len(held["pods"])
        pods = self._gone(self._still_holding(held["pods"]))
        targets = [dict(target) for target in held["targets"]]
        usable = [target for target in targets if target["node"] in found and not target["reason"]]
        takers = self._take_all([self._taker(target, found[target["node"]]) for target in usable if target["idle"]])
        self.runner.remove(takers)
        pending = self._too_many(usable, found) + self._elsewhere(usable, found)
        self._run_in_lots(pending)
        self.runner.remove(pending)
        after = {entry["name"]: entry for entry in capacity.read(self.cluster, self.vendors)}
        for target in targets:
            target["allocatable_after"] = _resource(after.get(target["node"]), target["resource"]).get("allocatable")
        records = [probe.as_record(self.settings.namespace) for probe in [*takers, *pending]]
        return {**held, "targets": targets, "pods": [*pods, *records], "residue": self.remove()}

    def remove(self) -> List[str]:
        """Phase remove: every probe object of every run goes; returns the names of what is left."""
        self.sweep()
        return probe_run.remove_namespace(self.cluster, self.settings.namespace, self.settings.timeout) + self._probe_pods()

    def sweep(self) -> List[str]:
        """Remove the probe pods of all runs, also of one that was interrupted; returns the names of what was found."""
        found = self._probe_pods()
        for namespace in sorted({name.partition("/")[0] for name in found}):
            probe_run.remove_pods(self.cluster, namespace, objects.ANY_PROBE, self.settings.timeout)
        return found

    def _probe_pods(self) -> List[str]:
        """Pods of any run of the probe, namespace/name, sorted."""
        pods = self.cluster.list("/api/v1/pods", label_selector=objects.ANY_PROBE)
        return sorted(f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}" for pod in pods)

    def _run_in_lots(self, probes: Sequence[Probe]) -> None:
        for lot in probe_run.split(list(dict.fromkeys(probe.node for probe in probes)), self.settings.parallelism):
            self.runner.run([probe for probe in probes if probe.node in lot])

    def _probe(self, kind: str, node: str, resource: str, quantity: int, taints: Any, hostname: str = "") -> Probe:
        self._made += 1
        user = self.settings.user if kind == "all" else 0
        body = objects.pod(
            f"gpu-probe-{self.settings.run_id}-{self._made}", self.settings.run_id, image=self.settings.image,
            arguments=self._arguments, limits={resource: str(quantity)} if resource else None, node=node, hostname=hostname,
            taints=taints, deadline=self.settings.deadline, runtime_class=self.settings.runtime_classes.get(resource, ""),
            user=user, groups=self.settings.groups,
        )  # fmt: skip
        return Probe(kind, node, resource, quantity, body, selector=hostname, user=user)

    def _holders(self, target: Json, found: Mapping[str, Json]) -> List[Probe]:
        """One pod for each idle device; also for devices beyond the expected, which may be the same hardware twice."""
        if target["reason"]:
            return []
        taints = found[target["node"]]["taints"]
        # A plugin that claims thousands is red by its capacity; it must not make thousands of pods.
        count = min(target["idle"], 2 * target["expected"] + _MOST_BEYOND)
        return [self._probe("each", target["node"], target["resource"], 1, taints) for ignored in range(count)]

    def _taker(self, target: Json, node: Json) -> Probe:
        """The pod that takes all idle devices of a node at once, and finds the node by its label."""
        quantity = target["idle"] if target["replicas"] == 1 else 1
        return self._probe("all", node["name"], target["resource"], quantity, node["taints"], node["hostname_label"])

    def _take_all(self, takers: List[Probe]) -> List[Probe]:
        """Run the takers; one that the kubelet refuses is tried again, and its last attempt stands."""
        self._run_in_lots(takers)
        for attempt in range(2, _ATTEMPTS + 1):
            refused = {index for index, probe in enumerate(takers) if probe.reason == "UnexpectedAdmissionError"}
            takers = [self._again(probe, attempt) if index in refused else probe for index, probe in enumerate(takers)]
            self._run_in_lots([takers[index] for index in sorted(refused)])
        return takers

    def _again(self, probe: Probe, attempt: int) -> Probe:
        self._made += 1
        body = {**probe.body, "metadata": {**probe.body["metadata"], "name": f"gpu-probe-{self.settings.run_id}-{self._made}"}}
        return Probe(
            probe.kind,
            probe.node,
            probe.resource,
            probe.quantity,
            body,
            selector=probe.selector,
            attempts=attempt,
            user=probe.user,
        )

    def _too_many(self, targets: Sequence[Json], found: Mapping[str, Json]) -> List[Probe]:
        """One device more than the hardware has must not find a place."""
        return [self._probe("over", each["node"], each["resource"], each["expected"] + 1, found[each["node"]]["taints"])
                for each in targets]  # fmt: skip

    def _elsewhere(self, targets: Sequence[Json], found: Mapping[str, Json]) -> List[Probe]:
        """For each resource, a pod that selects a node without it; none if every node has it."""
        probes = []
        for resource in sorted({target["resource"] for target in targets}):
            without = [node for node in found.values() if not not_probed_reason(node) and node["hostname_label"]
                       and not _resource(node, resource).get("capacity")]  # fmt: skip
            without.sort(key=lambda node: (len(node["resources"]), len(node["taints"]), node["name"]))
            for node in without[:1]:
                probes.append(self._probe("select", node["name"], resource, 1, node["taints"], node["hostname_label"]))
        return probes

    def _still_holding(self, records: Sequence[Json]) -> List[Json]:
        """The holders as they are now: one that has ended meanwhile did not hold its device beside the others."""
        path, selector = self.runner.pods_path, objects.run_selector(self.settings.run_id)
        now = {pod["metadata"]["name"]: pod for pod in self.cluster.list(path, label_selector=selector)}
        kept = []
        for record in records:
            pod = now.get(record["name"])
            same = pod is not None and pod["metadata"].get("uid", "") == record["uid"]
            phase = (pod or {}).get("status", {}).get("phase", "") if same else "Gone"
            ended = record["phase"] == "Running" and phase != "Running"
            change = {"phase": phase, "reason": "Ended", "message": "it ended while it should hold its device"}
            kept.append({**record, **change} if ended else record)
        return kept

    def _gone(self, records: Sequence[Json]) -> List[Json]:
        """Remove the holders; returns their records with what became of them."""
        probes = [Probe(each["kind"], each["node"], each["resource"], each["quantity"], {"metadata": {"name": each["name"]}})
                  for each in records]  # fmt: skip
        self.runner.remove(probes)
        return [{**record, "gone": probe.gone, "release_seconds": probe.release_seconds}
                for record, probe in zip(records, probes)]  # fmt: skip

    def _admission(self, resource: str) -> List[Json]:
        """What the API server says to half a GPU, to a request that differs from its limit, and to a limit alone."""
        attempts = (
            ("ADM-INTEGER", {resource: "500m"}, None),
            ("ADM-EQUAL", {resource: "2"}, {resource: "1"}),
            ("ADM-LIMIT-ONLY", {resource: "1"}, None),
        )
        return [self._attempt(check_id, resource, limits, requests) for check_id, limits, requests in attempts]

    def _attempt(self, check_id: str, resource: str, limits: Mapping[str, str], requests: Optional[Mapping[str, str]]) -> Json:
        body = objects.pod(
            f"gpu-probe-{self.settings.run_id}-{check_id.lower()}", self.settings.run_id, image=self.settings.image,
            arguments=self._arguments, limits=limits, requests=requests,
        )  # fmt: skip
        began = time.monotonic()
        answer: Json = {"check": check_id, "resource": resource, "limits": dict(limits), "asked": dict(requests or {})}
        try:
            # A dry run goes through all of admission and creates nothing.
            created = self.cluster.create(self.runner.pods_path, body, dry_run=True)
            granted = created["spec"]["containers"][0]["resources"].get("requests") or {}
            answer.update(status=201, reason="", message="", requests=granted)
        except ApiError as error:
            if error.status == 0:
                raise
            answer.update(status=error.status, reason=error.reason, message=error.body_message or error.message, requests={})
        return {**answer, "seconds": round(time.monotonic() - began, 3)}


def not_probed_reason(node: Optional[Json]) -> str:
    """Why pods cannot be tried on a node, "" if they can."""
    if node is None:
        return "the cluster has no such node"
    if not node["ready"]:
        return f"the node is not Ready ({node['ready_reason']})"
    return "the node is cordoned" if node["unschedulable"] else ""


def _resource(node: Optional[Json], resource: str) -> Json:
    entries: Sequence[Json] = (node or {}).get("resources", [])
    return next((entry for entry in entries if entry["name"] == resource), {})


def to_target(row: Row, node: Optional[Json]) -> Json:
    """What to probe on one node for one resource: the devices that are idle, and who holds the others."""
    entry = _resource(node, row.resource)
    reason = not_probed_reason(node)
    if not reason and not entry.get("allocatable"):
        reason = f"the node offers no {row.resource}"
    stuck = [f"{holder['namespace']}/{holder['pod']}" for holder in entry.get("holders", []) if holder["probe"]]
    if not reason and stuck:
        # Devices that no user holds and that nobody has proven: to call them busy would be green by mistake.
        reason = f"probe pods of another run hold devices and do not go away: {', '.join(stuck)}"
    return {
        "node": row.node, "resource": row.resource, "expected": row.expected, "replicas": row.replicas,
        "allocatable": entry.get("allocatable", 0), "allocated": entry.get("allocated", 0), "idle": entry.get("free", 0),
        "holders": entry.get("holders", []), "reason": reason,
    }  # fmt: skip
