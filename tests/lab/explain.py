# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a lab looks like when a test on it has failed: everything that a person would ask it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.lab.harness import Lab

_JOURNAL = "journalctl --no-pager --lines=25 --unit={unit} --output=short-precise; systemctl is-active {unit} || true"
_ASKED = "ps -eo pid,stat,etimes,args --sort=-etimes | tail -n 40; ls -l /dev/nvidia* /dev/dri 2>/dev/null || true"


def explain(lab: Lab) -> str:
    """Machine load, evidence, API objects, and each node's services; a question that fails says so and hides no other."""
    parts = [
        _part("machine", _machine),
        _part("checks that failed or were left out", lambda: _checks(lab)),
        _part("nodes", lambda: lab.kubectl("get", "nodes", "-o", "wide")),
        _part("pods", lambda: lab.kubectl("get", "pods", "-A", "-o", "wide")),
        _part("events", lambda: lab.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")[-4000:]),
        _part("faults", lambda: lab.command("fault", "list", "--json").stdout),
    ]
    for node in _nodes(lab):
        for unit in ("containerd", "kubelet"):
            parts.append(_part(f"{node}: {unit}", _question(lab, node, _JOURNAL.format(unit=unit))))
        parts.append(_part(f"{node}: processes and devices", _question(lab, node, _ASKED)))
    return "\n".join(parts)


def _part(title: str, ask: Callable[[], str]) -> str:
    try:
        answer = ask()
    except (AssertionError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        answer = f"could not be asked: {error}"
    return f"--- {title}\n{answer.rstrip()}"


def _question(lab: Lab, node: str, command: str) -> Callable[[], str]:
    return lambda: lab.inside(node, command)


def _machine() -> str:
    pressure = Path("/proc/pressure/cpu")
    load = Path("/proc/loadavg").read_text(encoding="utf-8")
    return load + (pressure.read_text(encoding="utf-8") if pressure.exists() else "")


def _checks(lab: Lab) -> str:
    checks = [check for check in lab.evidence()["checks"] if check["status"] != "pass"]
    return "\n".join(json.dumps({key: check[key] for key in ("id", "node", "status", "reason")}) for check in checks)


def _nodes(lab: Lab) -> list[str]:
    try:
        state = json.loads((lab.folder / "state.json").read_text(encoding="utf-8"))
        return [node if isinstance(node, str) else node["name"] for node in state["nodes"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
