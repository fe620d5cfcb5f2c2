# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a node: its files, its network, its supervisor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpuops_lab import control_groups, network
from gpuops_lab.control_plane import ControlPlane
from gpuops_lab.hardware import catalogue, tree
from gpuops_lab.node import files
from gpuops_lab.node.boot import BootPlan
from gpuops_lab.node.files import NodePlan
from gpuops_lab.node.supervisor import ENDED_FILE, INIT_FILE
from gpuops_lab.paths import LAB_FOLDER, state_folder
from gpuops_lab.place import Place


def supervisor_group(place: Place) -> str:
    """Control group of the processes that boot the nodes."""
    return f"{place.control_group}/supervisors"


def start(plan: NodePlan, control_plane: ControlPlane, lower: list[Path], ssh_public_key: str, count: int) -> str:
    """Make a node and boot it; returns its SSH host key line without waiting for it.

    Args:
        plan: The node.
        control_plane: A started control plane.
        lower: Layers of its root, topmost first.
        ssh_public_key: Line for root's authorized_keys.
        count: Number of nodes in the lab.
    """
    for name in ("upper", "work", "root", "containerd", "kubelet"):
        (plan.folder / name).mkdir(parents=True, exist_ok=True)
    hardware = plan.folder / "hardware"
    tree.write(catalogue.load(plan.spec.hardware, plan.spec.name), hardware)
    host_key = files.write(plan, control_plane, ssh_public_key)
    network.add_node(plan.place, plan.spec.name, plan.position, count)
    BootPlan(
        folder=str(plan.folder),
        lower=[str(path) for path in (hardware / "root", *lower)],
        hardware=str(hardware),
        hostname=plan.spec.hostname,
        network_namespace=plan.place.network_namespace(plan.spec.name),
        control_group=plan.control_group,
        supervisor_group=supervisor_group(plan.place),
        hierarchies=[] if control_groups.is_unified() else control_groups.controllers(),
    ).write()
    _start_supervisor(plan)
    return host_key


def _start_supervisor(plan: NodePlan) -> None:
    group = supervisor_group(plan.place)
    control_groups.create(group)
    log = log_file(plan.place, plan.spec.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        subprocess.Popen(
            [sys.executable, "-m", "gpuops_lab.node.supervisor", str(plan.folder)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            env={"PYTHONPATH": str(LAB_FOLDER), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            preexec_fn=lambda: control_groups.enter(group),
        )


def log_file(place: Place, node: str) -> Path:
    """Where a node's boot writes its console."""
    return state_folder(place.name) / "logs" / f"{node}.log"


def init_process(place: Place, node: str) -> int | None:
    """Host id of a node's PID 1, None while it is not running."""
    try:
        pid = int((place.folder / "nodes" / node / INIT_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return pid if pid in control_groups.processes(f"{place.control_group}/{node}") else None


def has_ended(place: Place, node: str) -> bool:
    """Whether a node was booted and has powered off, or could not boot."""
    return (place.folder / "nodes" / node / ENDED_FILE).exists()
