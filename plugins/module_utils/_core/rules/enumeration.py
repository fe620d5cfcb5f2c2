# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Phase enumeration: do inventory, cluster and PCI bus agree, and is every GPU usable by its driver?"""

from __future__ import annotations

from collections import Counter
from typing import List

from ansible_collections.gpuops.k8s.plugins.module_utils._core.checks import Check, fail, judge, skip
from ansible_collections.gpuops.k8s.plugins.module_utils._core.situation import Json, NodeInput, Situation

# Problems of a vendor's tool that is there: the driver then serves programs badly or not at all. An absent tool is fine.
_TELLING = (
    "tool_broken", "tool_slow", "tool_counts_fewer", "uuid_missing", "uuid_twice", "driver_library_mismatch", "gpu_error",
    "partitions_differ", "compute_missing",
)  # fmt: skip
_EXCLUDED = {
    "vfio": "it is bound to vfio-pci, kept for virtual machines",
    "virtual_function": "it is a virtual function of another GPU",
    "divided": "it is divided into virtual functions",
    "integrated": "it is part of the processor",
}


def checks(situation: Situation) -> List[Check]:
    """All checks of the phase."""
    result = [check for node in situation.nodes for check in _node(situation, node)]
    return result + _not_in_inventory(situation) + _named_twice(situation)


def _node(situation: Situation, node: NodeInput) -> List[Check]:
    subject: Json = {"node": node.name, "evidence": [f"facts/{node.name}"]}
    if node.facts is None:
        return [fail("ENUM-COUNT", f"the GPUs of host {node.host} could not be read", expected=node.expected_gpus,
                     hint=f"look at the play's earlier output for {node.host}: unreachable, or gpu_facts failed",
                     **subject)]  # fmt: skip
    gpus = [gpu for gpu in node.facts.get("gpus", []) if gpu["vendor"] in situation.vendors]
    result = [_count(situation, node, gpus)]
    for gpu in gpus:
        result += [_model(node, gpu), _driver(node, gpu)]
    result += [_left_out(node, gpu) for gpu in node.facts.get("excluded_gpus", []) if gpu["vendor"] in situation.vendors]
    for vendor in sorted({gpu["vendor"] for gpu in gpus}):
        ready = bool(node.facts.get("runtime", {}).get(vendor, False))
        telling = [entry["message"] for entry in node.facts.get("problems", []) if entry["code"] in _TELLING]
        problems = telling or [entry["message"] for entry in node.facts.get("problems", [])]
        reason = "" if ready else f"{vendor} is not ready for containers" + (f": {problems[0]}" if problems else "")
        reason = reason or (f"{vendor}: {telling[0]}" if telling else "")
        result.append(judge("ENUM-RUNTIME", True, ready, problem=reason, device=vendor, **subject))
    return result


def _count(situation: Situation, node: NodeInput, gpus: List[Json]) -> Check:
    subject: Json = {"node": node.name, "evidence": [f"facts/{node.name}", f"node/{node.name}"]}
    expected = len(gpus) if node.expected_gpus is None else node.expected_gpus
    if node.name not in situation.capacity:
        return fail("ENUM-COUNT", f"host {node.host} of the inventory is no node of the cluster named {node.name}",
                    expected=expected, observed=None, **subject,
                    hint="set gpu_node_name for the host to the name in `kubectl get nodes`, or join the node")  # fmt: skip
    if node.facts is not None and node.facts.get("count", len(gpus)) < len(gpus):
        return fail("ENUM-COUNT", "gpu_facts contradicts itself: fewer GPUs counted than listed", expected=len(gpus),
                    observed=node.facts["count"], **subject)  # fmt: skip
    return judge("ENUM-COUNT", expected, len(gpus), **subject)


def _model(node: NodeInput, gpu: Json) -> Check:
    known = bool(gpu.get("model")) and not gpu["model"].startswith("unknown")
    problem = "" if known else f"PCI id {gpu['vendor_id']}:{gpu['device_id']} is in no catalogue"
    return judge("ENUM-MODEL", gpu.get("model"), gpu.get("model"), problem=problem, node=node.name,
                 resource=gpu.get("resource", ""), device=gpu["pci_address"], evidence=[f"facts/{node.name}"])  # fmt: skip


def _driver(node: NodeInput, gpu: Json) -> Check:
    problem = ""
    if gpu.get("state") != "ready":
        problem = f"{gpu['pci_address']} is {gpu.get('state') or 'in no known state'} (driver {gpu.get('driver') or 'none'})"
    elif not gpu.get("resource"):
        problem = f"driver {gpu.get('driver') or 'none'} of {gpu['pci_address']} serves no extended resource"
    return judge("ENUM-DRIVER", "ready", gpu.get("state"), problem=problem, node=node.name,
                 resource=gpu.get("resource", ""), device=gpu["pci_address"], evidence=[f"facts/{node.name}"])  # fmt: skip


def _left_out(node: NodeInput, gpu: Json) -> Check:
    """A GPU that is there and not to be offered: not proven, and therefore named."""
    why = _EXCLUDED.get(gpu["excluded"], gpu["excluded"])
    return skip("ENUM-DRIVER", f"{gpu['pci_address']} is not offered: {why}", node=node.name, device=gpu["pci_address"],
                evidence=[f"facts/{node.name}"])  # fmt: skip


def _not_in_inventory(situation: Situation) -> List[Check]:
    known = {node.name for node in situation.nodes}
    result = []
    for name, entry in sorted(situation.capacity.items()):
        offered = {each["name"]: each["capacity"] for each in entry.get("resources", [])}
        if name not in known and offered:
            result.append(fail("ENUM-COUNT", f"node {name} offers GPUs but is no host of the inventory", observed=offered,
                               hint="add the node to the inventory, so that its GPUs are verified too", node=name,
                               evidence=[f"node/{name}"]))  # fmt: skip
    return result


def _named_twice(situation: Situation) -> List[Check]:
    counted = Counter(node.name for node in situation.nodes)
    return [fail("ENUM-COUNT", f"{count} hosts of the inventory claim to be node {name}", node=name,
                 expected=1, observed=count, hint="give each host its own gpu_node_name")
            for name, count in sorted(counted.items()) if count > 1]  # fmt: skip
