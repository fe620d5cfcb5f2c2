# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contract command: any plugin on simulated hardware, in a namespace that leaves no trace."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops_lab import contract
from gpuops_lab.errors import LabError

CASES = json.loads((Path(__file__).parents[3] / "fixtures/golden/device_plugins.json").read_text())
PLUGIN = (sys.executable, "-m", "gpuops_lab.plugin", "--vendor")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")


def parse(*words):
    parser = argparse.ArgumentParser()
    contract.add_arguments(parser)
    return parser.parse_args(words)


@needs_root
@pytest.mark.parametrize(
    ("number", "hardware", "vendor"), [(0, "mi300x-8", "amd"), (2, "flex-170-2", "intel"), (3, "battlemage-2", "intel")]
)
def test_record_equals_the_recorded_plugin(number, hardware, vendor, tmp_path):
    before = Path("/proc/self/mountinfo").read_text()
    out = tmp_path / "out.json"
    assert contract.run(parse("--hardware", hardware, "--record", str(out), "--", *PLUGIN, vendor)) == 0
    (recorded,) = json.loads(out.read_text())
    assert recorded["run"] == {"plugin": PLUGIN[0], "args": [*PLUGIN[1:], vendor], "hardware": hardware}
    assert recorded["sockets"] == CASES[number]["sockets"]
    assert recorded["resources"] == CASES[number]["resources"]
    assert Path("/proc/self/mountinfo").read_text() == before


@needs_root
def test_nvidia_removes_its_socket_and_opens_control_nodes(tmp_path, capsys):
    assert contract.run(parse("--hardware", "h100-4", "--", *PLUGIN, "nvidia", "--pass-device-specs")) == 0
    (recorded,) = json.loads(capsys.readouterr().out)
    assert recorded["sockets"] == ["kubelet.sock"]
    paths = [spec["host_path"] for spec in recorded["resources"][0]["allocate_2"]["container_responses"][0]["devices"]]
    assert len([path for path in paths if path[11:].isdigit()]) == 2
    assert "/dev/nvidiactl" in paths


@needs_root
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("false",), "false registered no resource and ended with status 1, it printed nothing"),
        (("/nosuch",), "cannot run /nosuch"),
        (("sh", "-c", "echo why; exit 3"), "ended with status 3: why"),
        ((*PLUGIN, "nvidia"), "no NVIDIA driver"),
        (("sleep", "60"), "registered no resource within 2 s"),
    ],
)
def test_nothing_registered_is_one_line(words, text):
    limit = "2" if words[0] == "sleep" else "60"  # only what never registers has to be waited for
    with pytest.raises(LabError) as caught:
        contract.run(parse("--hardware", "cpu-only", "--timeout", limit, "--", *words))
    assert text in caught.value.line()
    assert "\n" not in caught.value.line()


@needs_root
def test_the_namespace_shows_the_machine_and_hides_the_host(tmp_path):
    script = (
        "ls /sys/bus/pci/devices > OUT; ls /dev/dri >> OUT; xpu-smi discovery --dump 1 >> OUT; ls /sys/devices/system >> OUT"
    )
    target = tmp_path / "seen"
    with pytest.raises(LabError):
        contract.run(parse("--hardware", "flex-170-2", "--", "sh", "-c", script.replace("OUT", str(target))))
    seen = target.read_text().split()
    assert "0000:4d:00.0" in seen
    assert {"card0", "card1", "renderD128", "by-path", "Device", "cpu"} <= set(seen)
    host = set(os.listdir("/sys/bus/pci/devices")) if os.path.isdir("/sys/bus/pci/devices") else set()
    assert not (host - {"0000:00:00.0", "0000:00:05.0"}) & set(seen)


def test_wrong_use():
    with pytest.raises(LabError, match="no command given"):
        contract.run(parse())
    with pytest.raises(LabError, match="unknown hardware"):
        contract.run(parse("--hardware", "h100-5", "--", "true"))


@needs_root
def test_the_command_line_of_the_lab():
    done = subprocess.run(
        [sys.executable, "-m", "gpuops_lab.cli", "contract", "--hardware", "cpu-only", "--timeout", "1", "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(contract.LAB_FOLDER)},
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("gpuops-lab: true registered no resource")
