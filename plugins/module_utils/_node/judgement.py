# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether containers can use a GPU, and what a person should do where they cannot."""

from __future__ import annotations

from typing import Dict, List

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import GpuRecord, Problem, problem
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

_DRIVER_PROBLEMS = {
    "no_driver": ("driver_missing", "no driver is bound", "Install and load a driver that serves it: {drivers}."),
    "nouveau": ("nouveau_bound", "it is bound to nouveau", "Blacklist nouveau, rebuild the initramfs, load {drivers}."),
    "vfio": ("vfio_bound", "it is bound to {driver}, kept for virtual machines", "Unbind it from {driver}, bind {drivers}."),
    "wrong_driver": ("wrong_driver", "it is bound to {driver}, which serves no containers", "Bind it to {drivers}."),
}


def judge(root: Root, vendor: Vendor, gpu: GpuRecord, missing_shared: List[str]) -> List[Problem]:
    """Complete state, ready and resource of a GPU that is to be offered; returns what is wrong with it."""
    address = gpu["pci_address"]
    problems: List[Problem] = []
    if gpu["state"] in _DRIVER_PROBLEMS:
        problems.append(_driver_problem(vendor, gpu))
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
    problems.extend(_model_problems(vendor, gpu))
    gpu["ready"] = gpu["state"] == "ready"
    gpu["resource"] = vendor.resources[gpu["driver"]] if gpu["ready"] else ""
    return problems


def look_at_excluded(vendor: Vendor, gpu: GpuRecord) -> List[Problem]:
    """What a person should know of a GPU that is not to be offered: only what may be a mistake."""
    problems = _model_problems(vendor, gpu)
    if gpu["excluded"] == "vfio" and not gpu["virtual_function"]:
        problems.append(_driver_problem(vendor, gpu))
    return problems


def _driver_problem(vendor: Vendor, gpu: GpuRecord) -> Problem:
    drivers = " or ".join(sorted(vendor.resources))
    code, what, hint = _DRIVER_PROBLEMS[gpu["state"]]
    message = f"{vendor.title} GPU {gpu['pci_address']}: {what.format(driver=gpu['driver'])}"
    return problem(code, gpu["pci_address"], message, hint.format(drivers=drivers, driver=gpu["driver"]))


def _model_problems(vendor: Vendor, gpu: GpuRecord) -> List[Problem]:
    if not gpu["model"].startswith("unknown "):
        return []
    message = f"{vendor.title} GPU {gpu['pci_address']}: device id {gpu['vendor_id']}:{gpu['device_id']} is in no catalogue"
    hint = "Update pci.ids on the node, or the vendor's record."
    return [problem("model_unknown", gpu["pci_address"], message, hint)]


def look_at_all(vendor: Vendor, offered: List[GpuRecord], missing_shared: List[str]) -> List[Problem]:
    """What is wrong with the GPUs that the driver serves, taken together."""
    served = [gpu for gpu in offered if gpu["driver"] in vendor.resources]
    problems: List[Problem] = []
    if served and missing_shared:
        what = f"{vendor.title}: the device nodes {', '.join(missing_shared)} are missing, so no program can use the GPUs"
        problems.append(problem("control_node_missing", missing_shared[0], what, _nodes_hint(vendor, served[0])))
    if vendor.device_id_fact == "uuid":
        problems.extend(_uuid_problems(served))
    for gpu in served:
        if gpu["mig_mode"] == "enabled" and not gpu["mig_devices"]:
            message = f"{vendor.title} GPU {gpu['pci_address']}: MIG is enabled and there is no instance, so nothing can run"
            problems.append(problem("mig_without_instances", gpu["pci_address"], message, "Create instances or turn MIG off."))
    return problems


def look_at_topology(vendor: Vendor, gpus: List[GpuRecord], addresses: List[str]) -> List[Problem]:
    """GPUs that can be opened and not computed with, and partitions that only the topology knows.

    C(addresses) is the GPU of each of the topology's nodes.
    """
    problems: List[Problem] = []
    for gpu in gpus:
        address, nodes, known = gpu["pci_address"], addresses.count(gpu["pci_address"]), 1 + len(gpu["partitions"])
        if gpu["driver"] not in vendor.resources or nodes == known:
            continue
        if nodes == 0:
            message = (
                f"{vendor.title} GPU {address}: {gpu['driver']} holds it and cannot compute on it: it is not in the topology"
            )
            hint = "The GPU, or its firmware in this kernel, is not supported for computing: look at dmesg for kfd."
            problems.append(problem("compute_missing", address, message, hint))
        else:
            message = f"{vendor.title} GPU {address}: {nodes} partitions in the topology, {known} in sysfs"
            hint = f"Load the driver anew; look below {vendor.reading.partition_folders.rsplit('/', 1)[0]}."
            problems.append(problem("partitions_differ", address, message, hint))
    return problems


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
