# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated vendor tools: programs that a node runs and that read the node's own tree."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from gpuops_lab.hardware.machine import Machine
from gpuops_lab.hardware.writer import TreeWriter

_TOOLS = {
    "nvidia": {"nvidia-smi": "nvidia_smi.py"},
    "amd": {"rocm-smi": "amd_smi.py", "amd-smi": "amd_smi.py"},
    "intel": {"xpu-smi": "xpu_smi.py"},
}
# What only the vendor's library knows, so that no file of sysfs or procfs can say it.
TABLE = "usr/share/gpuops-lab/gpus.json"


def digest(text: str, length: int) -> str:
    """The first hex digits of a text's hash."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def write(machine: Machine, writer: TreeWriter) -> None:
    """Write the tools of every vendor whose driver is loaded."""
    loaded = {gpu.vendor for gpu in machine.gpus if gpu.function.driver in {name for name, _ in machine.modules}}
    for vendor in sorted(loaded):
        for name, source in _TOOLS[vendor].items():
            text = (Path(__file__).parent / source).read_text(encoding="utf-8")
            writer.file(f"usr/bin/{name}", f"#!/usr/bin/python3\n{text}", mode=0o755)
    table = {
        gpu.address: {"name": gpu.product, "memory_mib": gpu.memory_bytes // 1024**2, "uuid": gpu.uuid, "index": gpu.minor}
        for gpu in machine.gpus
    }
    writer.file(TABLE, json.dumps(table, indent=1, sort_keys=True))
