# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab's life: it starts, leaves nothing, survives every crash, and lives beside others."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.lab.harness import PROGRAMS, Lab, host_traces

SMALL = """\
---
nodes:
  - name: one
    hardware: l4-2
"""


@pytest.fixture
def small_topology(tmp_path: Path) -> str:
    path = tmp_path / "small.yml"
    path.write_text(SMALL, encoding="utf-8")
    return str(path)


def test_up_and_down_leave_no_trace_and_are_no_ops_twice(small_topology: str) -> None:
    lab = Lab("test-life", small_topology)
    before = host_traces(lab.name)
    try:
        lab.command("up", small_topology)
        during = host_traces(lab.name)
        assert during["processes"]
        assert during["groups"]
        assert during["folders"]
        first = lab.command("status", "--json").stdout
        assert "running already" in lab.command("up", small_topology).stderr
        assert lab.command("status", "--json").stdout == first
        assert (lab.folder / "kubeconfig").stat().st_mode & 0o077 == 0
    finally:
        lab.command("down")
    assert host_traces(lab.name) == before
    assert not lab.folder.exists()
    assert lab.command("down").returncode == 0
    assert lab.command("status", check=False).returncode == 1


@pytest.mark.parametrize("seconds", [0.3, 1.0, 2.0, 3.5, 6.0])
def test_down_after_a_killed_up_leaves_no_trace(small_topology: str, seconds: float) -> None:
    lab = Lab("test-killed", small_topology)
    before = host_traces(lab.name)
    process = subprocess.Popen(
        [PROGRAMS / "gpuops-lab", "up", small_topology, "--name", lab.name],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    # The moment of the crash is what is tested, so this waits for a time and not for a condition.
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    lab.command("down")
    assert host_traces(lab.name) == before


def test_up_works_after_a_killed_up(small_topology: str) -> None:
    lab = Lab("test-again", small_topology)
    before = host_traces(lab.name)
    process = subprocess.Popen(
        [PROGRAMS / "gpuops-lab", "up", small_topology, "--name", lab.name],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    time.sleep(2.5)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with lab.running():
        assert lab.command("status").returncode == 0
    assert host_traces(lab.name) == before


def test_two_labs_live_side_by_side(small_topology: str) -> None:
    first, second = Lab("test-one", small_topology), Lab("test-one-more", small_topology)
    with first.running():
        beside = host_traces(first.name)
        with second.running():
            assert "one" in second.kubectl("get", "nodes", "--output", "name")
            assert first.inside("one", "cat /etc/machine-id") != second.inside("one", "cat /etc/machine-id")
        assert first.command("status").returncode == 0
        assert host_traces(first.name)["links"] == beside["links"]
        assert "node/one" in first.kubectl("get", "nodes", "--output", "name")


def test_a_rebooted_node_comes_back_by_itself(small_topology: str) -> None:
    lab = Lab("test-reboot", small_topology)
    with lab.running():
        before = _boot_time(lab)
        lab.command("ssh", "one", "--", "systemctl reboot", check=False)
        deadline = time.monotonic() + 60
        while _boot_time(lab) in ("", before):
            assert time.monotonic() < deadline, "the node did not come back within 60 s"
            time.sleep(0.5)
        lab.kubectl("wait", "--for=condition=Ready", "node/one", "--timeout=240s")


def _boot_time(lab: Lab) -> str:
    """When the node's PID 1 started, "" while it cannot be reached."""
    done = lab.command("ssh", "one", "--", "stat -c %Y /proc/1", check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def test_a_node_is_a_host_of_its_own(small_topology: str) -> None:
    lab = Lab("test-host", small_topology)
    with lab.running():
        assert lab.inside("one", "ps -p 1 -o comm=").strip() == "systemd"
        assert lab.inside("one", "systemctl is-active kubelet containerd kube-proxy").split() == ["active"] * 3
        assert lab.inside("one", "systemctl --failed --no-legend").strip() == ""
        assert lab.inside("one", "hostname").strip() == "one"
        assert lab.inside("one", "ls /root").strip() == ""
        cards = [line for line in lab.inside("one", "lspci -nn").splitlines() if "[10de:" in line]
        assert len(cards) == 2
