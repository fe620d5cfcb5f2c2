# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Phase advertisement: expected = capacity = allocatable, on a healthy node, under the right names only."""

from __future__ import annotations

from typing import List, Set

from ansible_collections.gpuops.k8s.plugins.module_utils._core.checks import Check, fail, judge
from ansible_collections.gpuops.k8s.plugins.module_utils._core.situation import Json, NodeInput, Row, Situation


def checks(situation: Situation) -> List[Check]:
    """All checks of the phase."""
    result = []
    for row in situation.rows:
        where: Json = {**row.subject, "evidence": [f"node/{row.node}", f"facts/{row.node}"]}
        result += [
            judge("ADV-CAPACITY", row.expected, row.advertised.get("capacity"), **where),
            judge("ADV-ALLOCATABLE", row.expected, row.advertised.get("allocatable"), **where),
            _health(situation, row),
        ]
    return result + [_names(situation, node) for node in situation.nodes if node.facts is not None]


def _health(situation: Situation, row: Row) -> Check:
    node = situation.capacity.get(row.node, {})
    where: Json = {**row.subject, "evidence": [f"node/{row.node}"]}
    capacity, allocatable = row.advertised.get("capacity"), row.advertised.get("allocatable")
    if not node.get("ready", False):
        return fail("ADV-HEALTH", f"the node is not Ready: {node.get('ready_reason') or 'no condition'}",
                    expected="Ready", observed=node.get("ready_reason", ""), **where)  # fmt: skip
    if node.get("unschedulable", False):
        return fail("ADV-HEALTH", "the node is cordoned", expected="schedulable", observed="unschedulable",
                    hint=f"kubectl uncordon {row.node}", **where)  # fmt: skip
    if capacity is None:
        return fail("ADV-HEALTH", f"the node does not list {row.resource}", expected=row.expected, **where)
    problem = "" if capacity == allocatable else f"{capacity - (allocatable or 0)} of {capacity} devices are unhealthy"
    return judge("ADV-HEALTH", capacity, allocatable, problem=problem, **where)


def _names(situation: Situation, node: NodeInput) -> Check:
    wanted = {row.resource for row in situation.rows if row.node == node.name}
    entry = situation.capacity.get(node.name)
    where: Json = {"node": node.name, "evidence": [f"node/{node.name}", f"facts/{node.name}"]}
    if entry is None:
        return fail("ADV-NAMES", "the cluster has no such node", expected=sorted(wanted), **where)
    listed: Set[str] = {each["name"] for each in entry.get("resources", []) if _is_verified(situation, each["name"])}
    problem = ""
    stale = sorted(each["name"] for each in entry.get("resources", [])
                   if each["name"] in listed - wanted and not each["capacity"])  # fmt: skip
    if stale:
        problem = f"{', '.join(stale)} stands at 0: left by a plugin that is gone"
    elif listed - wanted:
        problem = f"the node offers {', '.join(sorted(listed - wanted))}, which its hardware does not account for"
    elif wanted - listed:
        problem = f"the node does not offer {', '.join(sorted(wanted - listed))}"
    return judge("ADV-NAMES", sorted(wanted), sorted(listed), problem=problem, **where)


def _is_verified(situation: Situation, resource: str) -> bool:
    """Whether a resource belongs to a vendor that is verified."""
    return any(
        resource in vendor.resources.values()
        or bool(vendor.stale_resource_prefix and resource.startswith(vendor.stale_resource_prefix))
        for vendor in situation.vendors.values()
    )
