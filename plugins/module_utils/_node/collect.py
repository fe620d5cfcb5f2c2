# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""C(NodeFacts): all GPUs of a node, what they should add to the cluster, and what stands in their way."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Optional, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import GpuRecord, NodeFacts, Problem, problem
from ansible_collections.gpuops.k8s.plugins.module_utils._node import gpus as gpu_reader
from ansible_collections.gpuops.k8s.plugins.module_utils._node import pci, tools
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS

RunTool = Callable[[Sequence[str], float], tools.ToolAnswer]

_DRIVER_PROBLEMS = {
    "no_driver": ("driver_missing", "no driver is bound", "Install and load a driver that serves it: {drivers}."),
    "nouveau": ("nouveau_bound", "it is bound to nouveau", "Blacklist nouveau, rebuild the initramfs, load {drivers}."),
    "vfio": ("vfio_bound", "it is bound to vfio-pci, kept for virtual machines", "Unbind it from vfio-pci, bind {drivers}."),
    "wrong_driver": ("wrong_driver", "it is bound to {driver}, which serves no containers", "Bind it to {drivers}."),
}


def collect(
    root_path: str = "/",
    vendors: Optional[Iterable[Vendor]] = None,
    tool_timeout: float = 15,
    run_tool: Optional[RunTool] = None,
) -> NodeFacts:
    """Read a node. Nothing here fails: what is wrong becomes a GPU's state and a problem.

    C(tool_timeout) is in seconds, 0 runs no tool. Tools run on the live system only, unless C(run_tool) is given.
    """
    root = Root(root_path)
    facts: NodeFacts = {
        "gpus": [], "vendors": [], "count": 0, "resources": {}, "runtime": {}, "problems": [], "sources": {},
    }  # fmt: skip
    facts["sources"]["pci"] = root.join(pci.FOLDER)
    if not root.exists(pci.FOLDER):
        what = "there are no PCI functions to read"
        facts["problems"].append(problem("pci_unreadable", pci.FOLDER, what, "Is /sys mounted?"))
    functions = pci.gpu_functions(root)
    runner = run_tool or (tools.run if root.is_live and tool_timeout > 0 else None)
    for vendor in VENDORS.values() if vendors is None else vendors:
        own = [function for function in functions if function.vendor_id == vendor.pci_vendor_id]
        if own:
            _add_vendor(facts, root, vendor, own, runner, tool_timeout)
    facts["gpus"].sort(key=lambda gpu: gpu["pci_address"])
    facts["vendors"] = sorted({gpu["vendor"] for gpu in facts["gpus"]})
    facts["count"] = len(facts["gpus"])
    facts["resources"] = _resources(facts["gpus"])
    return facts


def _add_vendor(
    facts: NodeFacts, root: Root, vendor: Vendor, functions: List[pci.PciFunction], runner: Optional[RunTool], timeout: float
) -> None:
    found = [gpu_reader.record(root, vendor, function, index) for index, function in enumerate(functions)]
    problems = gpu_reader.add_partitions(root, vendor, found)
    missing = [node for node in vendor.required_nodes if not root.is_device(node)]
    for gpu in found:
        problems.extend(_judge(root, vendor, gpu, missing))
    served = [gpu for gpu in found if gpu["driver"] in vendor.resources]
    facts["sources"][vendor.name] = "sysfs"
    if served:
        problems.extend(_ask_tool(facts, vendor, served, runner, timeout))
        if missing:
            what = f"{vendor.title}: the device nodes {', '.join(missing)} are missing, so no program can use the GPUs"
            problems.append(problem("control_node_missing", missing[0], what, _nodes_hint(vendor, served[0])))
        if vendor.device_id_fact == "uuid":
            problems.extend(_uuid_problems(served))
    facts["gpus"].extend(found)
    facts["problems"].extend(problems)
    facts["runtime"][vendor.name] = all(gpu["ready"] for gpu in found)


def _judge(root: Root, vendor: Vendor, gpu: GpuRecord, missing_shared: List[str]) -> List[Problem]:
    """Complete state, ready and resource of a GPU; returns what is wrong with it."""
    address, drivers = gpu["pci_address"], " or ".join(sorted(vendor.resources))
    problems: List[Problem] = []
    if gpu["state"] in _DRIVER_PROBLEMS:
        code, what, hint = _DRIVER_PROBLEMS[gpu["state"]]
        what = what.format(driver=gpu["driver"])
        problems.append(problem(code, address, f"{vendor.title} GPU {address}: {what}", hint.format(drivers=drivers)))
    else:
        own = gpu["device_nodes"] + [node for nodes in gpu["partition_nodes"].values() for node in nodes]
        absent = [node for node in own if not root.is_device(node)]
        gpu["device_numbers"] = {node: root.device_number(node) for node in own if root.device_number(node)}
        if not gpu["device_nodes"] or absent:
            what = f"its device nodes {', '.join(absent)} are missing" if absent else "the driver made no device node for it"
            message = f"{vendor.title} GPU {address}: {what}"
            problems.append(problem("device_node_missing", address, message, _nodes_hint(vendor, gpu)))
        if problems or missing_shared:
            gpu["state"] = "no_device_node"
    if gpu["model"].startswith("unknown "):
        message = f"{vendor.title} GPU {address}: device id {gpu['vendor_id']}:{gpu['device_id']} is in no catalogue"
        problems.append(problem("model_unknown", address, message, "Update pci.ids on the node, or the vendor's record."))
    gpu["ready"] = gpu["state"] == "ready"
    gpu["resource"] = vendor.resources[gpu["driver"]] if gpu["ready"] else ""
    return problems


def _ask_tool(
    facts: NodeFacts, vendor: Vendor, served: List[GpuRecord], runner: Optional[RunTool], timeout: float
) -> List[Problem]:
    if not vendor.tool or runner is None:
        return []
    answer = runner(vendor.tool, timeout)
    name = vendor.tool[0]
    facts["sources"][f"{vendor.name}_tool"] = f"{name}: {answer.state}"
    if answer.state == "slow":
        hint = "The driver or a GPU may hang: look at dmesg; raise tool_timeout if the node is only slow."
        return [problem("tool_slow", name, f"{name}: {answer.detail}", hint)]
    if answer.state == "failed":
        hint = f"Run {' '.join(vendor.tool)} on the node; driver and library versions must match."
        return [problem("tool_broken", name, f"{name}: {answer.detail}", hint)]
    if answer.state == "ok" and vendor.reading.tool_columns:
        named = gpu_reader.merge_tool_rows(vendor, answer.output, served)
        facts["sources"][vendor.name] = f"sysfs, {name}"
        if named < len(served):
            message = f"{name} names {named} of the {len(served)} GPUs that the driver holds"
            return [problem("tool_counts_fewer", name, message, "A GPU may have fallen off the bus: look at dmesg.")]
    return []


def _uuid_problems(served: List[GpuRecord]) -> List[Problem]:
    """Ids by which the device plugin names GPUs must be there, and each only once."""
    problems: List[Problem] = []
    seen: Dict[str, str] = {}
    for gpu in served:
        address, uuid = gpu["pci_address"], gpu["uuid"]
        if not uuid and gpu["ready"]:
            hint = "Enable the persistence daemon, so that the driver initialises the GPU."
            problems.append(problem("uuid_missing", address, f"GPU {address}: the driver tells no UUID", hint))
        elif uuid and uuid in seen:
            message = f"GPUs {seen[uuid]} and {address} have the same UUID {uuid}"
            problems.append(problem("uuid_twice", address, message, "Check the driver's reading of the hardware."))
        seen.setdefault(uuid, address)
    return problems


def _nodes_hint(vendor: Vendor, gpu: GpuRecord) -> str:
    return vendor.reading.missing_nodes_hint.format(driver=gpu["driver"]) or "Look at dmesg, and that udev runs."


def _resources(gpus: List[GpuRecord]) -> Dict[str, int]:
    """Resource to expected quantity: each GPU once, and each of its further partitions once."""
    totals: Dict[str, int] = {}
    for gpu in gpus:
        if gpu["resource"]:
            totals[gpu["resource"]] = totals.get(gpu["resource"], 0) + 1 + len(gpu["partitions"])
    return dict(sorted(totals.items()))
