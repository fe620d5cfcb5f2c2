# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab's life with the process driver: up, down, status."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuops_lab import control_groups, control_plane, host_settings, images, network, place, state, system_tree
from gpuops_lab.command import last_line
from gpuops_lab.control_plane import ControlPlane
from gpuops_lab.errors import LabError
from gpuops_lab.hardware import catalogue
from gpuops_lab.node import layers, start
from gpuops_lab.node.files import NodePlan
from gpuops_lab.packages import toolkit
from gpuops_lab.paths import CHECKOUT, check_name, state_folder
from gpuops_lab.place import Place
from gpuops_lab.programs import build, components, source
from gpuops_lab.topology import Topology

Report = Callable[[str], None]
TOOLS = ("ip", "nft", "debootstrap", "ssh", "cc", "gpg", "dpkg-deb")
READY_TIMEOUT = 120.0


@dataclass(frozen=True)
class Parts:
    """Everything that a lab needs before it can start, all of it cached."""

    kubernetes: str
    programs: dict[str, Path]
    packages: Path
    trees: dict[str, Path]
    images: images.ImageArchive
    image_store: Path


def check_host() -> None:
    """Say in one line why this machine cannot run the process driver, if it cannot.

    Raises:
        LabError: Not Linux, not root, or a tool is missing.
    """
    ways_out = "use a Linux machine where you are root, or run the playbooks on a cluster of yours"
    if platform.system() != "Linux":
        raise LabError(f"the process driver needs Linux, this is {platform.system()}", ways_out)
    if os.geteuid() != 0:
        raise LabError("the process driver needs root", f"run with sudo, or {ways_out}")
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        raise LabError(f"missing programs: {', '.join(missing)}", "run `make setup` as root")


def prepare(systems: set[str], report: Report, source_name: str = "") -> Parts:
    """Make or fetch programs, trees and images; only the first run on a machine takes long."""
    version = components.kubernetes_version()
    programs = source.programs(components.components(version), report, source_name)
    vendor_tools = components.nvidia_toolkit()
    [folder] = build.build_all([vendor_tools], report)
    packages = toolkit.layer({program.name: folder / program.name for program in vendor_tools.programs})
    trees = {system: system_tree.ensure(system, report).path for system in sorted(systems)}
    archive = images.build(images.default_path())
    return Parts(version, programs, packages, trees, archive, images.store.ensure(archive, programs, report))


def up(name: str, topology: Topology, report: Report, source_name: str = "") -> dict[str, Any]:
    """Start a lab and return its state; a lab that runs already is left as it is.

    Raises:
        LabError: It cannot start; then nothing of it is left.
    """
    check_name(name)
    check_host()
    for node in topology.nodes:
        catalogue.load(node.hardware)
    with place.held(name):
        running = status(name)
        if running["running"]:
            if running["topology"] != topology.name:
                raise LabError(f"lab {name} runs topology {running['topology']}", f"`gpuops-lab down --name {name}` first")
            report(f"lab {name} is running already")
            return running
        parts = prepare({node.system for node in topology.nodes}, report, source_name)
        _remove(name, report_nothing)
        try:
            return _start(name, topology, parts, report)
        except BaseException as error:
            _remove_after(error, name)
            raise


def _remove_after(error: BaseException, name: str) -> None:
    """Remove what a failed start has made; if that fails too, the first reason must not get lost."""
    try:
        _remove(name, report_nothing, keep_logs=True)
    except LabError as second:
        if isinstance(error, LabError):
            raise LabError(f"{error.line()}; and then: {second.message}", second.hint) from error
        raise


def report_nothing(_: str) -> None:
    """Take a progress line that nobody wants to read."""


def _start(name: str, topology: Topology, parts: Parts, report: Report) -> dict[str, Any]:
    started = time.monotonic()
    taken = place.take(name, CHECKOUT)
    host_settings.raise_to_minimum()
    network.create(taken)
    plane = control_plane.start(taken, parts.programs)
    plans = [NodePlan(taken, node, position) for position, node in enumerate(topology.nodes)]
    _start_nodes(plane, plans, parts)
    report(f"lab {name}: {len(plans)} nodes booting after {time.monotonic() - started:.1f} s")
    control_plane.wait_ready(taken, READY_TIMEOUT)
    report(f"lab {name}: API server ready after {time.monotonic() - started:.1f} s")
    _wait_for_nodes(taken, plans, set(parts.images.names))
    seconds = round(time.monotonic() - started, 1)
    report(f"lab {name}: {len(plans)} nodes Ready after {seconds} s")
    state.write_inventory(name, plans, "process")
    document = {
        "name": name,
        "driver": "process",
        "topology": topology.name,
        "kubernetes": parts.kubernetes,
        "kubeconfig": str(plane.kubeconfig),
        "server": plane.server,
        "kubectl": str(parts.programs["kubectl"]),
        "seconds": seconds,
        "images": sorted(parts.images.names),
        "nodes": [_node_state(plan) for plan in plans],
    }
    state.write_state(name, document)
    return {"running": True, **document}


def _node_state(plan: NodePlan) -> dict[str, str]:
    return {
        "name": plan.spec.name,
        "hardware": plan.spec.hardware,
        "system": plan.spec.system,
        "address": plan.address,
        "folder": str(plan.folder),
    }


def _start_nodes(plane: ControlPlane, plans: list[NodePlan], parts: Parts) -> None:
    public_key = state.make_ssh_key(plane.place.name)
    programs = layers.programs_layer(parts.programs)

    def one(plan: NodePlan) -> str:
        images.store.link_into(parts.image_store, plan.folder / "containerd")
        return start.start(plan, plane, [programs, parts.packages, parts.trees[plan.spec.system]], public_key, len(plans))

    with ThreadPoolExecutor(max_workers=4) as pool:
        host_keys = list(pool.map(one, plans))
    state.write_known_hosts(plane.place.name, {plan.address: key for plan, key in zip(plans, host_keys, strict=True)})


def _wait_for_nodes(taken: Place, plans: list[NodePlan], image_names: set[str]) -> None:
    reader = control_plane.ApiReader(taken)
    deadline = time.monotonic() + READY_TIMEOUT
    while True:
        waiting = _not_ready(reader, plans, image_names)
        if not waiting:
            return
        first, reason = next(iter(waiting.items()))
        log = start.log_file(taken, first)
        if start.has_ended(taken, first):
            raise LabError(f"node {first} ended while it booted: {last_line(log.read_text(errors='replace'))}", f"read {log}")
        if time.monotonic() > deadline:
            raise LabError(f"node {first} is not ready after {READY_TIMEOUT:.0f} s: {reason}", f"read {log}")
        time.sleep(0.25)


def _not_ready(reader: control_plane.ApiReader, plans: list[NodePlan], image_names: set[str]) -> dict[str, str]:
    try:
        nodes = {item["metadata"]["name"]: item for item in reader.get("/api/v1/nodes")["items"]}
    except OSError as error:
        return {plan.spec.name: str(error) for plan in plans}
    waiting = {}
    for plan in plans:
        reason = _why_not_ready(nodes.get(plan.spec.name), image_names) or _why_no_ssh(plan.address)
        if reason:
            waiting[plan.spec.name] = reason
    return waiting


def _why_not_ready(node: dict[str, Any] | None, image_names: set[str]) -> str:
    if node is None:
        return "it has not registered"
    ready = [c for c in node["status"].get("conditions", []) if c["type"] == "Ready"]
    if not ready or ready[0]["status"] != "True":
        return f"not Ready: {ready[0].get('message', '') if ready else 'no condition yet'}"
    there = {name for image in node["status"].get("images", []) for name in image.get("names") or []}
    missing = sorted(image_names - there)
    return f"image {missing[0]} is not imported" if missing else ""


def _why_no_ssh(address: str) -> str:
    try:
        socket.create_connection((address, 22), timeout=1).close()
    except OSError as error:
        return f"no SSH at {address}: {error}"
    return ""


def down(name: str, report: Report) -> None:
    """Remove every trace of a lab, from names alone; a lab that does not exist is no error."""
    check_name(name)
    if place.find(name) is None and not state_folder(name).is_dir():
        return
    with place.held(name):
        _remove(name, report)


def _remove(name: str, report: Report, *, keep_logs: bool = False) -> None:
    taken = place.find(name)
    if taken is not None:
        if os.geteuid() != 0:
            raise LabError(f"removing lab {name} needs root", "run with sudo")
        report(f"lab {name}: ending processes")
        for node in sorted({path.name for path in (taken.folder / "nodes").glob("*")}):
            control_groups.end_processes(f"{taken.control_group}/{node}", grace=0.0)
        control_groups.end_processes(taken.control_group, grace=0.0)
        with place.locked():
            network.remove(taken)
            control_groups.remove(taken.control_group)
            if [other.name for other in place.every()] == [name]:
                host_settings.restore(taken.settings_before)
            shutil.rmtree(taken.folder)
        report(f"lab {name}: removed")
    folder = state_folder(name)
    for path in [] if not folder.is_dir() else list(folder.iterdir()):
        if path.name != "logs" or not keep_logs:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def status(name: str) -> dict[str, Any]:
    """State of a lab with C(running), and for each node whether it runs."""
    taken, document = place.find(check_name(name)), state.read_state(name)
    if taken is None or document is None or document.get("driver") != "process":
        return {"running": False, "name": name}
    programs = control_plane.running_programs(taken)
    nodes = [{**node, "running": start.init_process(taken, node["name"]) is not None} for node in document["nodes"]]
    running = {"etcd", "kube-apiserver"} <= programs and all(node["running"] for node in nodes)
    return {"running": running, **document, "nodes": nodes, "control_plane": sorted(programs)}
