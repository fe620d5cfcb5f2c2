# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node boots once, in order, and again only when it asks for that: two boots on one root would ruin it."""

from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path

import pytest

from gpuops_lab.node import supervisor
from gpuops_lab.node.boot import BootPlan


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BootPlan:
    """A plan whose boot needs neither root nor namespaces."""
    monkeypatch.setattr(supervisor.control_groups, "create", lambda group: None)
    monkeypatch.setattr(supervisor.control_groups, "enter", lambda group: None)
    monkeypatch.setattr(supervisor.os, "setns", lambda *arguments: None)
    monkeypatch.setattr(supervisor.os, "unshare", lambda flags: None)
    monkeypatch.setattr(supervisor, "open", lambda path, mode: (tmp_path / "init").open("ab"), raising=False)
    return BootPlan(
        folder=str(tmp_path), lower=[], hardware="", hostname="n", network_namespace="n", control_group="lab/n",
        supervisor_group="lab/supervisors", hierarchies=[],
    )  # fmt: skip


def _boots(plan: BootPlan) -> list[str]:
    path = Path(plan.folder, "boots")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _record(plan: BootPlan) -> None:
    with Path(plan.folder, "boots").open("a", encoding="utf-8") as stream:
        stream.write(f"{Path(plan.folder, 'init').read_text(encoding='utf-8').strip()} {os.getpid()}\n")


def test_the_boot_begins_when_the_waiter_has_left_the_nodes_group(plan: BootPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both share a mount namespace, in which the boot hides the host's control groups."""

    def enter(group: str) -> None:
        if group == plan.supervisor_group:
            time.sleep(0.3)  # a busy machine: without order the boot is long under way by now

    monkeypatch.setattr(supervisor.control_groups, "enter", enter)
    monkeypatch.setattr(supervisor, "boot", _record)
    supervisor._boot_once(plan)
    [line] = _boots(plan)
    told, own = line.split()
    assert told == own


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143), (signal.SIGKILL, 137)])
def test_the_signal_that_ended_the_node_is_told(
    plan: BootPlan, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    monkeypatch.setattr(supervisor, "boot", lambda plan: os.kill(os.getpid(), number))
    assert supervisor._boot_once(plan) == code


def test_a_boot_that_fails_is_no_reboot(plan: BootPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exit code of 1 was once taken for signal 1, SIGHUP, by which a node asks to be booted again."""

    def fails(plan: BootPlan) -> None:
        _record(plan)
        raise OSError("no such file")

    monkeypatch.setattr(supervisor, "boot", fails)
    monkeypatch.setattr(supervisor, "read_plan", lambda folder: plan)
    monkeypatch.setattr(supervisor.sys, "argv", ["supervisor", plan.folder])
    assert supervisor.main() == 0
    assert len(_boots(plan)) == 1
    assert Path(plan.folder, supervisor.ENDED_FILE).exists()


def test_a_waiter_that_fails_starts_no_node(plan: BootPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    def enter(group: str) -> None:
        if group == plan.supervisor_group:
            raise FileNotFoundError(group)

    monkeypatch.setattr(supervisor.control_groups, "enter", enter)
    monkeypatch.setattr(supervisor, "boot", _record)
    monkeypatch.setattr(supervisor.sys, "stderr", io.StringIO())
    assert supervisor._boot_once(plan) == 1
    time.sleep(0.2)
    assert _boots(plan) == []
