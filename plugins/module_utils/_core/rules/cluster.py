# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Phases admission, scheduling and cleanup: what the API server, the scheduler and the clean-up made of the probes."""

from __future__ import annotations

import re
from typing import List

from ansible_collections.gpuops.k8s.plugins.module_utils._core.checks import Check, fail, judge, skip
from ansible_collections.gpuops.k8s.plugins.module_utils._core.situation import Json, Row, Situation, has_report, pod_problem

_REFUSED_WITH = {"ADM-INTEGER": "must be an integer", "ADM-EQUAL": "must be equal to"}


def admission(situation: Situation) -> List[Check]:
    """Every attempt against the API server, for each resource that the hardware accounts for."""
    seen = {(entry["check"], entry["resource"]): entry for entry in situation.probe.get("admission", [])}
    result = []
    for resource in sorted({row.resource for row in situation.rows}):
        for check_id in ("ADM-INTEGER", "ADM-EQUAL", "ADM-LIMIT-ONLY"):
            where: Json = {"resource": resource, "evidence": [f"admission/{check_id}/{resource}"]}
            entry = seen.get((check_id, resource))
            if entry is None:
                result.append(fail(check_id, "the API server was not asked", **where))
            else:
                result.append(_attempt(check_id, entry, {**where, "seconds": entry.get("seconds", 0.0)}))
    if result:
        result.append(skip("ADM-QUOTA", "this run manages no quota"))
        result.append(skip("ADM-QUOTA-RELEASE", "this run manages no quota"))
    return result


def _attempt(check_id: str, entry: Json, where: Json) -> Check:
    if check_id == "ADM-LIMIT-ONLY":
        problem = "" if entry["status"] < 300 else f"refused with {entry['status']}: {entry['message']}"
        wanted = {entry["resource"]: "1"}
        observed = {entry["resource"]: str((entry.get("requests") or {}).get(entry["resource"], "nothing"))}
        return judge(check_id, wanted, observed, problem=problem, **where)
    if entry["status"] < 300:
        return fail(check_id, "the API server accepted it", expected=422, observed=entry["status"], **where)
    problem = ""
    if _REFUSED_WITH[check_id] not in entry["message"]:
        problem = f"refused for another reason: {entry['message']}"
    return judge(check_id, 422, entry["status"], problem=problem, **where)


def scheduling(situation: Situation) -> List[Check]:
    """What the scheduler did with one too many, and with label targeting."""
    result: List[Check] = []
    for row in situation.rows:
        over = situation.pods("over", row.node, row.resource)
        tried = _stays_pending("SCH-OVER", row.node, row.resource, over) if over else None
        result.append(tried or _not_tried("SCH-OVER", row, row.subject))
        result.append(_selected(row, situation.pods("all", row.node, row.resource)))
    for pod in (pod for pod in situation.probe.get("pods", []) if pod["kind"] == "select"):
        result.append(_stays_pending("SCH-SELECT", pod["node"], pod["resource"], [pod]))
    if situation.rows:
        result.append(skip("SCH-TAINT", "this run puts no taint on nodes"))
    return result


def _stays_pending(check_id: str, node: str, resource: str, pods: List[Json]) -> Check:
    """The pod must be Pending because the node has not enough of this very resource."""
    where: Json = {"node": node, "resource": resource, "evidence": [f"pod/{pod['name']}" for pod in pods]}
    pod = pods[0]
    where["seconds"] = pod.get("seconds", 0.0)
    wanted = f"Insufficient {resource}"
    if pod.get("placed"):
        return fail(check_id, f"a pod that asks for {pod['quantity']} was placed on {pod['placed']}", expected="Pending",
                    observed=pod.get("phase"), **where)  # fmt: skip
    if not re.search(re.escape(wanted) + r"(?![\w/-]|\.\w)", pod.get("message", "")):
        return fail(check_id, f"not placed, but not for {wanted!r}: {pod.get('message') or 'no message'}", expected=wanted,
                    observed=pod.get("message"), **where)  # fmt: skip
    return judge(check_id, "Pending", pod.get("phase"), **where)


def _selected(row: Row, pods: List[Json]) -> Check:
    where: Json = {**row.subject, "evidence": [f"pod/{pod['name']}" for pod in pods]}
    if not pods:
        return _not_tried("SCH-SELECT", row, where)
    if not pods[0].get("selector"):
        return skip("SCH-SELECT", "the node has no label kubernetes.io/hostname to select it by", **where)
    where["seconds"] = pods[0].get("seconds", 0.0)
    problem = "" if pods[0].get("placed") else pod_problem(pods[0])
    return judge("SCH-SELECT", row.node, pods[0].get("placed"), problem=problem, **where)


def _not_tried(check_id: str, row: Row, where: Json) -> Check:
    """No probe was planned here: left out where others hold every device, a failure everywhere else."""
    if row.all_busy():
        return skip(check_id, row.all_busy(), **where)
    return fail(check_id, f"not tried: {row.target.get('reason') or 'the probe planned no pod here'}", **where)


def cleanup(situation: Situation) -> List[Check]:
    """Whether the devices came back and nothing is left."""
    result: List[Check] = []
    for row in situation.rows:
        result += [_release(situation, row), _reuse(situation, row)]
    residue = situation.probe.get("residue")
    if residue is None:
        result.append(fail("CLN-RESIDUE", "the probe was not ended, so what it left is unknown", evidence=["residue"]))
    else:
        problem = f"left: {', '.join(residue)}" if residue else ""
        result.append(judge("CLN-RESIDUE", [], list(residue), problem=problem, evidence=["residue"]))
    return result


def _release(situation: Situation, row: Row) -> Check:
    pods = situation.pods("each", row.node, row.resource)
    where: Json = {**row.subject, "evidence": [f"pod/{pod['name']}" for pod in pods]}
    if not pods:
        return _not_tried("CLN-RELEASE", row, where)
    if not any(has_report(pod) for pod in pods):
        return fail("CLN-RELEASE", "no probe pod ever held a device here", **where)
    where["seconds"] = max(pod.get("release_seconds") or 0.0 for pod in pods)
    pods = [*pods, *situation.pods("all", row.node, row.resource)]
    stuck = [pod["name"] for pod in pods if not pod.get("gone")]
    after = row.target.get("allocatable_after")
    problem = f"{', '.join(stuck)} still there after deletion" if stuck else ""
    return judge("CLN-RELEASE", row.target.get("allocatable"), after, problem=problem, **where)


def _reuse(situation: Situation, row: Row) -> Check:
    pods = situation.pods("all", row.node, row.resource)
    where: Json = {**row.subject, "evidence": [f"pod/{pod['name']}" for pod in pods]}
    if not pods:
        return _not_tried("CLN-REUSE", row, where)
    if not has_report(pods[0]):
        return fail("CLN-REUSE", pod_problem(pods[0]), **where)
    before = {unit.key for pod in situation.pods("each", row.node, row.resource) for unit in row.opened(pod)}
    again = sorted({unit.key for unit in row.opened(pods[0])} & before)
    where["seconds"] = pods[0].get("seconds", 0.0)
    expected = sorted(before) if row.replicas == 1 else again
    problem = "" if again else "the pod opened no device that was used before"
    return judge("CLN-REUSE", expected, again, problem=problem, **where)
