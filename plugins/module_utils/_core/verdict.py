# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict: one pure function from what is there and what came of it to the evidence.

The verdict is C(pass) only if something was checked, nothing failed, and every node and resource of the hardware had its
advertisement and assignment checks made, not left out. Everything else is C(fail), with the reasons named.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Set

from ansible_collections.gpuops.k8s.plugins.module_utils._core.checks import CHECKS, FAIL, PASS, PHASES, SKIP, Check, totals
from ansible_collections.gpuops.k8s.plugins.module_utils._core.rules import (
    advertisement,
    assignment,
    cluster,
    enumeration,
    registration,
)
from ansible_collections.gpuops.k8s.plugins.module_utils._core.situation import Json, Row, Situation

_RULES = (
    enumeration.checks, registration.checks, advertisement.checks, cluster.admission, cluster.scheduling,
    assignment.checks, cluster.cleanup,
)  # fmt: skip
# What must have been made, not left out, for each node and resource before anything may be called proven.
NEEDED = ("ADV-CAPACITY", "ADV-ALLOCATABLE", "ADV-HEALTH", "ADV-NAMES", "ASG-EACH", "ASG-OPEN")


def all_checks(situation: Situation) -> List[Check]:
    """Every check of the situation, phase by phase."""
    found = [check for rule in _RULES for check in rule(situation)]
    for check_id in ("LBL-PRESENT", "LBL-TRUE"):
        if situation.rows:
            found.append(Check(check_id, SKIP, reason="this run installs no node feature labels"))
    order = list(CHECKS)
    return sorted(found, key=lambda check: (PHASES.index(check.phase), order.index(check.id)))


def build(situation: Situation, about: Mapping[str, Any]) -> Dict[str, Any]:
    """The evidence, schema 1.

    I(about) gives collection, started (ISO 8601), seconds and cluster (version, driver). Besides the schema's keys the
    evidence has C(reasons), one line for each thing that keeps the verdict from C(pass), and C(objects), the object behind
    every reference in a check's evidence.
    """
    checks = all_checks(situation)
    reasons = _reasons(situation, checks)
    return {
        "schema": 1,
        "collection": about["collection"],
        "started": about["started"],
        "seconds": round(float(about["seconds"]), 3),
        "cluster": dict(about["cluster"]),
        "verdict": FAIL if reasons else PASS,
        "reasons": reasons,
        "totals": {"nodes": len(situation.nodes), "gpus": situation.gpus, "checks": totals(checks)},
        "nodes": [_node_record(situation, name) for name in dict.fromkeys(node.name for node in situation.nodes)],
        "checks": [check.as_record() for check in checks],
        "objects": _objects(situation, {reference for check in checks for reference in check.evidence}),
    }


def _node_record(situation: Situation, name: str) -> Json:
    return {"name": name, "resources": [_resource_record(situation, row) for row in situation.rows if row.node == name]}


def _opened(situation: Situation, row: Row) -> Set[str]:
    """PCI addresses of the GPUs that were opened in a pod which asked for one device."""
    return {unit.gpu for pod in situation.pods("each", row.node, row.resource) for unit in row.opened(pod)}


def _busy_gpus(situation: Situation, row: Row) -> Set[str]:
    busy = assignment.busy_units(situation, row)
    return {unit.gpu for unit in row.devices.of_resource(row.resource) if unit.key in busy}


def _resource_record(situation: Situation, row: Row) -> Json:
    return {
        "name": row.resource, "vendor": row.vendor.name, "physical": row.physical, "expected": row.expected,
        "capacity": row.advertised.get("capacity"), "allocatable": row.advertised.get("allocatable"),
        "opened": len(_opened(situation, row)), "busy": len(_busy_gpus(situation, row)),
    }  # fmt: skip


def _reasons(situation: Situation, checks: Sequence[Check]) -> List[str]:
    """Everything that keeps the verdict from pass; empty only when all is proven."""
    reasons = []
    made = [check for check in checks if check.status != SKIP]
    if not situation.nodes:
        reasons.append("the inventory has no node: nothing was verified")
    if not made:
        reasons.append("no check was made: nothing was verified")
    if situation.nodes and not situation.gpus and not all(node.expected_gpus == 0 for node in situation.nodes):
        reasons.append("no GPU was found on any node: nothing to verify (set gpu_expected_gpus: 0 if that is right)")
    reasons += [_failed_line(check) for check in checks if check.status == FAIL]
    for row in situation.rows:
        reasons += _unproven(situation, row, checks)
    return list(dict.fromkeys(reasons))


def _failed_line(check: Check) -> str:
    where = " ".join(part for part in (check.node, check.resource, check.device) if part)
    return f"{check.id}{' ' + where if where else ''}: {check.reason}"


def _unproven(situation: Situation, row: Row, checks: Sequence[Check]) -> List[str]:
    mine = [check for check in checks if check.node == row.node and check.resource in (row.resource, "")]
    reasons = []
    for check_id in NEEDED:
        if not any(check.id == check_id and check.status != SKIP for check in mine):
            why = next((check.reason for check in mine if check.id == check_id), "it was not made")
            reasons.append(f"{row.node} {row.resource}: nothing proven by {check_id}: {why}")
    opened, busy = _opened(situation, row), _busy_gpus(situation, row)
    numbers = {row.expected, row.advertised.get("capacity"), row.advertised.get("allocatable")}
    if len(numbers) > 1 or len(opened | busy) != row.physical:
        reasons.append(
            f"{row.node} {row.resource}: {row.physical} physical, {row.expected} expected, "
            f"{row.advertised.get('capacity')} capacity, {row.advertised.get('allocatable')} allocatable, "
            f"{len(opened)} opened, {len(busy)} busy"
        )
    return reasons


def summary(evidence: Mapping[str, Any], most: int = 3) -> str:
    """One line: the verdict, its totals, and the first reasons if it is C(fail)."""
    counted = evidence["totals"]["checks"]
    line = (
        f"verdict {evidence['verdict']}: {evidence['totals']['gpus']} GPUs on {evidence['totals']['nodes']} nodes, "
        f"{counted['pass']} checks passed, {counted['fail']} failed, {counted['skip']} skipped"
    )
    busy = sum(resource["busy"] for node in evidence["nodes"] for resource in node["resources"])
    if busy:
        line += f"; {busy} GPUs in use were not tried"
    reasons = evidence["reasons"]
    if not reasons:
        return line
    more = f" (and {len(reasons) - most} more)" if len(reasons) > most else ""
    first_hint = next((check["hint"] for check in evidence["checks"] if check["status"] == FAIL and check["hint"]), "")
    return f"{line}. {'; '.join(reasons[:most])}{more}" + (f". Next: {first_hint}" if first_hint else "")


def _objects(situation: Situation, references: Set[str]) -> Dict[str, Any]:
    """The objects behind the references, each once."""
    known: Dict[str, Any] = {"residue": situation.probe.get("residue")}
    for node in situation.nodes:
        known[f"facts/{node.name}"] = node.facts
        known[f"ledger/{node.name}"] = node.ledger
    known.update({f"node/{name}": entry for name, entry in situation.capacity.items()})
    known.update({f"pod/{pod['name']}": pod for pod in situation.probe.get("pods", [])})
    known.update({f"plugin/{entry['namespace']}/{entry['name']}": entry for entry in situation.plugins})
    for entry in situation.probe.get("admission", []):
        known[f"admission/{entry['check']}/{entry['resource']}"] = entry
    return {reference: known.get(reference) for reference in sorted(references)}
