# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long gpu_facts works on a node with 8 GPUs and 300 PCI functions, and its memory, beside ansible.builtin.setup.

Own work is from a module's call to its facts, without the start of Python and the import of code; the whole module is all
that. No tool of a vendor runs.
Run it as a program to see the numbers; measure() gives them as entries of results.json.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
PATHS = (str(CHECKOUT / "build" / "collections"), str(CHECKOUT / "lab"), str(CHECKOUT))
FUNCTIONS = 300
RUNS = 7
MOST_SECONDS = 0.060
MOST_BYTES = 40 * 1024**2
Json = dict[str, Any]


def node(root: Path) -> int:
    """Write an 8-GPU node with 300 PCI functions; returns how many there are."""
    from gpuops_lab.hardware import catalogue, tree

    tree.write(catalogue.load("h100-8"), root)
    for entry in json.loads((root / "device_nodes.json").read_text(encoding="utf-8")):
        path = root / entry["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    devices = root / "sys/bus/pci/devices"
    there = len(list(devices.iterdir()))
    for number in range(FUNCTIONS - there):
        address = f"0001:{number // 8:02x}:{number % 8:02x}.0"
        folder = root / "sys/devices/pci0001:00" / address
        folder.mkdir(parents=True)
        for name, text in (("vendor", "0x8086"), ("device", "0x2030"), ("class", "0x060400"), ("numa_node", "0")):
            (folder / name).write_text(f"{text}\n", encoding="utf-8")
        (devices / address).symlink_to(f"../../../devices/pci0001:00/{address}")
    return len(list(devices.iterdir()))


def own_work(root: str) -> Json:
    """In a process of its own: the facts of the made-up node."""
    from ansible_collections.gpuops.k8s.plugins.module_utils._node.collect import collect

    started = time.perf_counter()
    facts = collect(root, tool_timeout=0)
    seconds = time.perf_counter() - started
    if facts["count"] != 8 or facts["problems"]:
        raise AssertionError(f"the node was not read: {facts['count']} GPUs, {facts['problems']}")
    return {"own": seconds}


def setup_work() -> Json:
    """In a process of its own: the facts that ansible.builtin.setup gathers of this machine."""
    from ansible.module_utils.testing import patch_module_args
    from ansible.modules import setup

    started = time.perf_counter()
    # Its facts would lie between ours and the reader.
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        try:
            with patch_module_args({"gather_subset": ["all"], "gather_timeout": 10}):
                setup.main()
        except SystemExit:
            pass
    return {"own": time.perf_counter() - started}


def _child(*arguments: str) -> Json:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    started = time.perf_counter()
    command = [sys.executable, __file__, *arguments]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    result: Json = json.loads(answer)
    return {**result, "whole": time.perf_counter() - started}


def measure(runs: int = RUNS) -> list[Json]:
    """Both measured in turn, so that a busy machine slows them alike."""
    sys.path[:0] = [path for path in PATHS if path not in sys.path]
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        functions = node(Path(folder))
        if functions != FUNCTIONS:
            raise AssertionError(f"the node has {functions} PCI functions")
        for _run in range(runs):
            ours.append(_child("own", folder))
            theirs.append(_child("setup"))
    return [
        _entry("gpu_facts own work", "s", "own", ours, theirs, MOST_SECONDS),
        _entry("gpu_facts whole module", "s", "whole", ours, theirs, statistics.median(run["whole"] for run in theirs)),
        _entry("gpu_facts memory", "bytes", "bytes", ours, theirs, MOST_BYTES),
    ]


def _entry(name: str, unit: str, key: str, ours: list[Json], theirs: list[Json], most: float) -> Json:
    value, baseline = (statistics.median(run[key] for run in runs) for runs in (ours, theirs))
    return {
        "name": name, "value": value, "unit": unit, "baseline": "ansible.builtin.setup", "baseline_value": baseline,
        "ratio": value / baseline, "target": most, "ok": value <= most, "samples": [run[key] for run in ours],
    }  # fmt: skip


def main(arguments: list[str]) -> None:
    """Measure, or be one of the measured processes."""
    if not arguments:
        for entry in measure():
            print(json.dumps(entry))  # noqa: T201
        return
    # Both are Ansible modules, so both carry this.
    importlib.import_module("ansible.module_utils.basic")
    found = own_work(arguments[1]) if arguments[0] == "own" else setup_work()
    found["bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
