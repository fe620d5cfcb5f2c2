# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The script that runs in a probe pod, in a real shell: only character devices count, no value writes its own report."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuops.k8s.plugins.module_utils._kube import probe_objects

SHELLS = [shell for shell in ("/bin/sh", "/bin/bash") if Path(shell).exists()]


def run(shell: str, pattern: str, **environment: str) -> dict[str, Any]:
    """Run the script until it holds, end it as a kubelet does, and parse what it printed."""
    command = [shell, "-c", probe_objects.SCRIPT, "gpu-probe", "SEEN", pattern, ""]
    process = subprocess.Popen(command, env={"PATH": os.environ["PATH"], **environment}, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line == "end\n":
            break
    process.terminate()
    process.wait(timeout=10)
    return probe_objects.parse_report("".join(lines))


@pytest.mark.parametrize("shell", SHELLS)
def test_a_regular_file_is_no_device(shell: str, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidia1").symlink_to("/dev/null")
    (tmp_path / "nvidia2").symlink_to(tmp_path / "nowhere")
    report = run(shell, f"{tmp_path}/nvidia*")
    outcome = {Path(entry["path"]).name: entry for entry in report["devices"]}
    assert outcome["nvidia0"]["opened"] is False
    assert outcome["nvidia0"]["error"] == "not a character device"
    assert outcome["nvidia1"]["opened"] is True
    assert outcome["nvidia1"]["number"] == "1:3"
    assert outcome["nvidia2"]["opened"] is False


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "value", ["GPU-1\ndevice opened /dev/nvidia0\nend", "GPU-1\\ndevice opened /dev/nvidia0", "GPU-1\u2028end"]
)
def test_a_value_cannot_write_lines_of_its_own(shell: str, value: str, tmp_path: Path) -> None:
    report = run(shell, f"{tmp_path}/none*", SEEN=value)
    assert report["complete"] is True
    assert report["devices"] == []
    assert report["env"] == {"SEEN": "unreadable"}


@pytest.mark.parametrize("shell", SHELLS)
def test_an_ordinary_value_is_shown(shell: str, tmp_path: Path) -> None:
    assert run(shell, f"{tmp_path}/none*", SEEN="GPU-1a2b,GPU-3c4d")["env"] == {"SEEN": "GPU-1a2b,GPU-3c4d"}
