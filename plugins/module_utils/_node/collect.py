# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""C(NodeFacts): all GPUs of a node, what they should add to the cluster, and what stands in their way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Mapping, Optional

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import (
    Display,
    DriverFacts,
    GpuRecord,
    NodeFacts,
    Problem,
    problem,
)
from ansible_collections.gpuops.k8s.plugins.module_utils._node import (
    drivers,
    judgement,
    kernel_log,
    offer,
    pci,
    tools,
    topology,
    vendor_tool,
)
from ansible_collections.gpuops.k8s.plugins.module_utils._node import gpus as gpu_reader
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.displays import DISPLAYS
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS

TOOL_TIMEOUT = 10


@dataclass
class _Found:
    """What the files of a node say of one vendor's GPUs."""

    vendor: Vendor
    offered: List[GpuRecord]
    excluded: List[GpuRecord]
    driver: DriverFacts
    problems: List[Problem] = field(default_factory=list)

    @property
    def served(self) -> List[GpuRecord]:
        """The GPUs that a tool of the vendor sees."""
        found = (gpu for gpu in self.offered + self.excluded if gpu["driver"] in self.vendor.resources)
        whole = [gpu for gpu in found if not gpu["virtual_function"] or gpu["device_nodes"]]
        return sorted(whole, key=_address)


def collect(
    root_path: str = "/",
    vendors: Optional[Iterable[Vendor]] = None,
    tool_timeout: float = TOOL_TIMEOUT,
    run_tool: Optional[tools.RunTool] = None,
    include_integrated: bool = False,
) -> NodeFacts:
    """Read a node. Nothing here fails: what is wrong becomes a GPU's state and a problem.

    C(tool_timeout) is in seconds, 0 runs no tool. Tools run on the live system only, unless C(run_tool) is given.
    """
    root = Root(root_path)
    bus = pci.read(root)
    chosen = list(VENDORS.values() if vendors is None else vendors)
    everything = [_read(root, vendor, bus, include_integrated) for vendor in chosen]
    everything = [found for found in everything if found.offered or found.excluded]
    facts: NodeFacts = {
        "gpus": [], "excluded_gpus": [], "vendors": [], "count": 0, "resources": {}, "runtime": {}, "problems": [],
        "sources": {"pci": root.join(pci.FOLDER)}, "drivers": {}, "displays": _displays(root, bus),
        "secure_boot": drivers.secure_boot(root), "reboot_pending": False, "left_out": [],
    }  # fmt: skip
    if not root.exists(pci.FOLDER):
        what = "there are no PCI functions to read"
        facts["problems"].append(problem("pci_unreadable", pci.FOLDER, what, "Is /sys mounted?"))
    runner = run_tool or (tools.run if root.is_live and tool_timeout > 0 else None)
    questions = [question for found in everything for question in vendor_tool.questions(found.vendor, found.served)]
    answers = tools.run_all(questions, tool_timeout, runner) if runner else {}
    log = kernel_log.read(root) if everything else ""
    for found in everything:
        _add(facts, root, found, answers)
        facts["problems"].extend(kernel_log.problems(log, found.vendor, found.offered))
    _add_system(facts, root)
    return facts


def _read(root: Root, vendor: Vendor, bus: pci.Bus, include_integrated: bool) -> _Found:
    own = [
        function
        for function in bus.controllers
        if function.vendor_id == vendor.pci_vendor_id and function.class_code in vendor.pci_classes
    ]
    nodes = topology.read(root, vendor.reading.topology) if own else []
    records = [gpu_reader.record(root, vendor, function, index, nodes) for index, function in enumerate(own)]
    peers = topology.peers(root, nodes, vendor.reading.topology_links)
    for gpu in records:
        gpu["peers"] = peers.get(gpu["pci_address"], [])
    problems = gpu_reader.add_partitions(root, vendor, records, nodes) if records else []
    offered, excluded = offer.sort_out(vendor, records, include_integrated)
    if records and vendor.reading.topology and root.names(vendor.reading.topology):
        problems += judgement.look_at_topology(vendor, offered, [node.address for node in nodes])
    driver = drivers.facts(root, vendor, offered + excluded) if records else drivers.NONE
    return _Found(vendor, offered, excluded, driver, problems)


def _add(facts: NodeFacts, root: Root, found: _Found, answers: Mapping[tools.Command, tools.ToolAnswer]) -> None:
    """Judge one vendor's GPUs and put them into the facts."""
    vendor, served = found.vendor, found.served
    missing = [node for node in vendor.required_nodes if not root.is_device(node)]
    problems = list(found.problems)
    for gpu in found.offered:
        problems.extend(judgement.judge(root, vendor, gpu, missing))
    for gpu in found.excluded:
        problems.extend(judgement.look_at_excluded(vendor, gpu))
    facts["sources"][vendor.name] = "sysfs"
    told = vendor_tool.Answers(vendor, served, answers)
    if served and vendor.tool:
        told.take(found.driver)
        facts["left_out"].extend(told.left_out)
        if vendor.tool in answers:
            facts["sources"][f"{vendor.name}_tool"] = f"{vendor.tool[0]}: {answers[vendor.tool].state}"
        if told.merged:
            facts["sources"][vendor.name] = f"sysfs, {vendor.tool[0]}"
    problems.extend(told.problems)
    problems.extend(judgement.look_at_all(vendor, found.offered, missing))
    problems.extend(drivers.system_problems(vendor, found.offered, found.driver, facts["secure_boot"]))
    facts["gpus"].extend(found.offered)
    facts["excluded_gpus"].extend(found.excluded)
    facts["problems"].extend(problems)
    facts["drivers"][vendor.name] = found.driver
    if found.offered:
        facts["runtime"][vendor.name] = all(gpu["ready"] for gpu in found.offered)


def _add_system(facts: NodeFacts, root: Root) -> None:
    """What belongs to the node as a whole."""
    facts["gpus"].sort(key=_address)
    facts["excluded_gpus"].sort(key=_address)
    facts["vendors"] = sorted({gpu["vendor"] for gpu in facts["gpus"]})
    facts["count"] = len(facts["gpus"])
    facts["resources"] = _resources(facts["gpus"])
    path, reason = drivers.reboot_reason(root)
    facts["reboot_pending"] = bool(path)
    if path and facts["gpus"]:
        hint = "Drain the node and reboot it before its driver is changed."
        facts["problems"].append(problem("reboot_pending", path, f"The node waits for a reboot: {reason}", hint))
    facts["left_out"].extend({"subject": path, "reason": reason} for path, reason in sorted(root.unreadable.items()))


def _displays(root: Root, bus: pci.Bus) -> List[Display]:
    """Display controllers that are no GPUs of any vendor that is known."""
    makers = {vendor.pci_vendor_id for vendor in VENDORS.values()}
    found: List[Display] = []
    for function in bus.controllers:
        if function.class_code not in pci.DISPLAY_CLASSES or function.vendor_id in makers:
            continue
        kind, maker = DISPLAYS.get(function.vendor_id, ("other", ""))
        model = (
            f"{maker} {function.device_id}" if maker else pci.name_from_pci_ids(root, function.vendor_id, function.device_id)
        )
        found.append(
            {
                "pci_address": function.address,
                "vendor_id": function.vendor_id,
                "device_id": function.device_id,
                "model": model or f"unknown {function.vendor_id}:{function.device_id}",
                "driver": function.driver,
                "kind": kind,
            }
        )
    return found


def _resources(gpus: List[GpuRecord]) -> Dict[str, int]:
    """Resource to expected quantity: each GPU once, and each of its further partitions once."""
    totals: Dict[str, int] = {}
    for gpu in gpus:
        if gpu["resource"]:
            totals[gpu["resource"]] = totals.get(gpu["resource"], 0) + 1 + len(gpu["partitions"])
    return dict(sorted(totals.items()))


def _address(gpu: GpuRecord) -> str:
    return gpu["pci_address"]
