# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Phase assignment: did every device reach a pod, exactly one, and did the pod open it?"""

from __future__ import annotations

from collections import Counter
from typing import Dict, FrozenSet, List, Set

from ansible_collections.gpuops.k8s.plugins.module_utils._core.checks import Check, fail, judge, skip
from ansible_collections.gpuops.k8s.plugins.module_utils._core.situation import (
    Json,
    NodeInput,
    Row,
    Situation,
    has_report,
    ledger_entry,
    opened_nodes,
    pod_problem,
    seen_nodes,
)


def checks(situation: Situation) -> List[Check]:
    """All checks of the phase."""
    result: List[Check] = []
    for row in situation.rows:
        result += _row(situation, row)
    return result + [_none(situation, node) for node in situation.nodes if node.facts is not None]


def _row(situation: Situation, row: Row) -> List[Check]:
    pods = situation.pods("each", row.node, row.resource)
    result = _busy_devices(situation, row)
    if not pods:
        return result + _not_probed(situation, row)
    for pod in pods:
        result += [_open(row, pod), _ledger(row, pod)]
    return [*result, _each(situation, row, pods), _exclusive(row, pods), _all(situation, row), *_open_as_user(situation, row)]


def busy_units(situation: Situation, row: Row) -> Dict[str, str]:
    """Units that pods of others hold, by key, with their holder's name, as the kubelet's books say."""
    probes = {(pod.get("namespace"), pod["name"]) for pod in situation.probe.get("pods", [])}
    uids = {pod.get("uid") for pod in situation.probe.get("pods", []) if pod.get("uid")}
    busy: Dict[str, str] = {}
    holders = {entry.get("uid"): f"{entry['namespace']}/{entry['pod']}" for entry in row.target.get("holders", [])}
    for entry in row.allocations():
        if (entry.get("namespace"), entry.get("pod")) in probes or entry.get("pod_uid") in uids:
            continue
        named = f"{entry.get('namespace')}/{entry.get('pod')}" if entry.get("pod") else holders.get(entry.get("pod_uid"), "")
        # A pod that has ended may stay in the kubelet's books until the next allocation; only live holders count.
        if named in holders.values():
            busy.update({unit.key: named for unit in row.units(entry["device_ids"])})
    return busy


def _busy_devices(situation: Situation, row: Row) -> List[Check]:
    make = fail if situation.busy == "fail" else skip
    return [make("ASG-EACH", f"busy: held by {holder}", device=key, evidence=[f"ledger/{row.node}"], **row.subject)
            for key, holder in sorted(busy_units(situation, row).items())]  # fmt: skip


def _not_probed(situation: Situation, row: Row) -> List[Check]:
    ids = ("ASG-OPEN", "ASG-LEDGER", "ASG-EACH", "ASG-EXCLUSIVE", "ASG-ALL")
    where: Json = {**row.subject, "evidence": [f"node/{row.node}"]}
    if row.all_busy() and situation.busy != "fail":
        return [skip(check_id, row.all_busy(), **where) for check_id in ids]
    reason = row.target.get("reason") or row.all_busy() or "the probe never came here"
    return [fail(check_id, f"not probed: {reason}", expected=row.expected, observed=0, **where) for check_id in ids]


def _foreign_nodes(row: Row, pod: Json, mine: Set[str]) -> List[str]:
    """Device nodes in the pod that belong to other GPUs than the pod's own, or to none that the node's facts know."""
    return sorted(path for path in seen_nodes(pod) if row.devices.gpu_at(path) not in mine)


def _open(row: Row, pod: Json) -> Check:
    where: Json = {**row.subject, "device": pod["name"], "evidence": [f"pod/{pod['name']}"]}
    where["seconds"] = pod.get("seconds", 0.0)
    if not has_report(pod):
        return fail("ASG-OPEN", pod_problem(pod), **where)
    entry = ledger_entry(row, pod)
    units = row.units(entry["device_ids"]) if entry else row.opened(pod)
    if units:
        where["device"] = units[0].key
    wanted: FrozenSet[str] = frozenset().union(*(unit.nodes for unit in units))
    opened = opened_nodes(pod)
    problem = ""
    if not units or not wanted:
        problem = f"no device node to open for {', '.join(entry['device_ids']) if entry else 'an unknown device'}"
    elif not wanted <= opened:
        problem = f"could not open {_failures(pod, wanted - opened)}"
    else:
        problem = _pod_problem(row, pod, {unit.gpu for unit in units})
    own = frozenset(path for path in opened if row.devices.gpu_at(path) in {unit.gpu for unit in units})
    observed = sorted(wanted) if not problem and wanted <= own else sorted(opened)
    return judge("ASG-OPEN", sorted(wanted), observed, problem=problem, **where)


def _pod_problem(row: Row, pod: Json, mine: Set[str]) -> str:
    """What is wrong with the device nodes that a pod of these GPUs sees, "" if nothing is."""
    foreign, missing = _foreign_nodes(row, pod, mine), _missing_control(row, pod)
    if foreign:
        return f"the pod also sees {', '.join(foreign)} of other GPUs"
    for entry in pod["report"]["devices"]:
        owners = row.devices.gpus_of_number(entry.get("number", ""))
        if owners and row.devices.gpu_at(entry["path"]) not in owners:
            return f"{entry['path']} in the pod is the device of {', '.join(sorted(owners))} on the node ({entry['number']})"
    return f"could not open {', '.join(missing)}, which every program needs" if missing else ""


def _failures(pod: Json, paths: FrozenSet[str]) -> str:
    seen = {entry["path"]: entry.get("error") or "refused" for entry in pod["report"]["devices"]}
    return ", ".join(f"{path} ({seen.get(path, 'not in the pod')})" for path in sorted(paths))


def _missing_control(row: Row, pod: Json) -> List[str]:
    opened = {entry["path"] for entry in pod["report"].get("control", []) if entry["opened"]}
    return [path for path in row.vendor.required_nodes if path not in opened]


def _ledger(row: Row, pod: Json) -> Check:
    """Kubelet's books, the pod's environment and the node's hardware must name the same devices."""
    where: Json = {**row.subject, "device": pod["name"], "evidence": [f"ledger/{row.node}", f"pod/{pod['name']}"]}
    if row.ledger.get("source", "none") == "none":
        return fail("ASG-LEDGER", "the kubelet's books could not be read on the node", **where)
    entry = ledger_entry(row, pod)
    if entry is None:
        reason = "the kubelet's books hold no device for the pod" if has_report(pod) else pod_problem(pod)
        return fail("ASG-LEDGER", reason, expected=pod["quantity"], observed=0, **where)
    ids = entry["device_ids"]
    units = row.units(ids)
    where["device"] = ", ".join(ids)
    problem = _ledger_problem(row, pod, ids)
    opened = sorted({unit.key for unit in row.opened(pod)})
    return judge("ASG-LEDGER", sorted({unit.key for unit in units}), opened, problem=problem, **where)


def _ledger_problem(row: Row, pod: Json, ids: List[str]) -> str:
    registered = row.ledger.get("registered", {}).get(row.resource, [])
    if len(ids) != pod["quantity"]:
        return f"the kubelet gave {len(ids)} devices to a pod that asked for {pod['quantity']}"
    for device_id in ids:
        unit = row.devices.unit_of_id(device_id, row.resource)
        if unit is None:
            return f"device id {device_id} names no GPU of the node"
        if device_id not in registered:
            return f"device id {device_id} is not among the plugin's devices"
    return _visible_problem(row, pod, ids)


def _visible_problem(row: Row, pod: Json, ids: List[str]) -> str:
    """Whether the vendor's environment variable in the pod names other devices than the kubelet gave; "" without one."""
    value = (pod.get("report") or {}).get("env", {}).get(row.vendor.visible_env) if row.vendor.visible_env else None
    # A path says that the devices are named by mounts.
    if not value or value.startswith("/") or value in row.vendor.visible_by_runtime:
        return ""
    named = {word for word in value.split(",") if word}
    keys = {unit.key for unit in row.units(ids)}
    if all(word.isdigit() for word in named):
        fits = len(named) == len(keys)
    else:
        fits = named in (keys, set(ids))
    return "" if fits else f"{row.vendor.visible_env} in the pod is {value}, the kubelet gave {', '.join(ids)}"


def _each(situation: Situation, row: Row, pods: List[Json]) -> Check:
    busy = busy_units(situation, row)
    where: Json = {
        **row.subject,
        "evidence": [f"pod/{pod['name']}" for pod in pods],
        "seconds": max(pod.get("seconds", 0.0) for pod in pods),
    }
    wanted = sorted(unit.key for unit in row.devices.of_resource(row.resource) if unit.key not in busy)
    opened = sorted({unit.key for pod in pods for unit in row.opened(pod)})
    silent = [pod_problem(pod) for pod in pods if not has_report(pod)]
    problem = silent[0] + (f", and {len(silent) - 1} more" if len(silent) > 1 else "") if silent else ""
    if not wanted and not problem:
        problem = "the node's facts name no idle device, yet pods were given some"
    if not problem and wanted != opened:
        problem = f"never opened: {', '.join(sorted(set(wanted) - set(opened))) or 'none'}"
    return judge("ASG-EACH", wanted, opened, problem=problem, **where)


def _exclusive(row: Row, pods: List[Json]) -> Check:
    """No unit in more pods than it has replicas; no device id twice; counted over opened nodes and kubelet's books."""
    where: Json = {**row.subject, "evidence": [f"pod/{pod['name']}" for pod in pods] + [f"ledger/{row.node}"]}
    reported = [pod for pod in pods if has_report(pod)]
    if not reported:
        return fail("ASG-EXCLUSIVE", "no pod reported, so nothing was compared", **where)
    opened = Counter(unit.key for pod in reported for unit in row.opened(pod))
    ids = Counter(device_id for entry in row.allocations() for device_id in set(entry["device_ids"]))
    booked = Counter(unit.key for device_id in ids for unit in row.units([device_id]))
    twice = sorted({key for counted in (opened, booked) for key, count in counted.items() if count > row.replicas}
                   | {device_id for device_id, count in ids.items() if count > 1})  # fmt: skip
    problem = f"given to more than {row.replicas} pod(s) at once: {', '.join(twice)}" if twice else ""
    return judge("ASG-EXCLUSIVE", [], twice, problem=problem, **where)


def _all(situation: Situation, row: Row) -> Check:
    pods = situation.pods("all", row.node, row.resource)
    where: Json = {**row.subject, "evidence": [f"pod/{pod['name']}" for pod in pods]}
    if row.replicas > 1:
        return skip("ASG-ALL", f"{row.replicas} pods share a device here: one pod need not get all of them", **where)
    if not pods:
        return fail("ASG-ALL", "not tried: the probe planned no pod here", **where)
    pod = pods[0]
    where["seconds"] = pod.get("seconds", 0.0)
    if not has_report(pod):
        return fail("ASG-ALL", pod_problem(pod), **where)
    busy = busy_units(situation, row)
    wanted = sorted(unit.key for unit in row.devices.of_resource(row.resource) if unit.key not in busy)
    mine = {unit.gpu for unit in row.devices.of_resource(row.resource) if unit.key not in busy}
    problem = _pod_problem(row, pod, mine) if wanted else "nothing was idle"
    if not problem:
        entry = ledger_entry(row, pod)
        problem = _visible_problem(row, pod, entry["device_ids"]) if entry else ""
    return judge("ASG-ALL", wanted, sorted({unit.key for unit in row.opened(pod)}), problem=problem, **where)


def _open_as_user(situation: Situation, row: Row) -> List[Check]:
    """Whether the pod that takes all devices opened them as a user who is not root, where it was to run as one."""
    pods = [pod for pod in situation.pods("all", row.node, row.resource) if pod.get("user")]
    if not pods:
        return []
    pod = pods[0]
    where: Json = {**row.subject, "device": f"all, as user {pod['user']}", "evidence": [f"pod/{pod['name']}"]}
    where["seconds"] = pod.get("seconds", 0.0)
    if not has_report(pod):
        return [fail("ASG-OPEN", pod_problem(pod), **where)]
    busy = busy_units(situation, row)
    idle = [unit for unit in row.devices.of_resource(row.resource) if unit.key not in busy]
    wanted: FrozenSet[str] = frozenset().union(*(unit.nodes for unit in idle))
    opened = opened_nodes(pod) & wanted
    missing = _missing_control(row, pod)
    problem = "" if wanted else "nothing was idle"
    if not wanted <= opened:
        problem = f"user {pod['user']} could not open {_failures(pod, wanted - opened)}"
    elif missing:
        problem = f"user {pod['user']} could not open {', '.join(missing)}, which every program needs"
    hint = "give the pods the group that owns the device nodes, or set device_ownership in the container runtime"
    return [judge("ASG-OPEN", sorted(wanted), sorted(opened), problem=problem, hint=hint, **where)]


def _none(situation: Situation, node: NodeInput) -> Check:
    pods = situation.pods("none", node.name)
    where: Json = {"node": node.name, "evidence": [f"pod/{pod['name']}" for pod in pods]}
    if not pods:
        return fail("ASG-NONE", "not tried: the probe planned no pod without a GPU here", **where)
    if not has_report(pods[0]):
        return fail("ASG-NONE", pod_problem(pods[0]), **where)
    where["seconds"] = pods[0].get("seconds", 0.0)
    seen = sorted(entry["path"] for part in ("devices", "control") for entry in pods[0]["report"].get(part, []))
    problem = f"a pod that asked for no GPU sees {', '.join(seen)}" if seen else ""
    return judge("ASG-NONE", [], seen, problem=problem, **where)
