# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo`: the lab, gpuops.k8s.site on it, and what came of it in one table."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

CHECKOUT = Path(__file__).resolve().parent.parent
PROGRAMS = CHECKOUT / ".venv" / "bin"
OUTPUT = CHECKOUT / "build" / "demo"
INVENTORY = "build/lab/demo/inventory.yml"


def main() -> int:
    """Run the demo; 0 only when the verdict is pass."""
    # What an earlier run left must not be taken for this one's result.
    shutil.rmtree(OUTPUT, ignore_errors=True)
    started = time.monotonic()
    lab = [str(PROGRAMS / "gpuops-lab"), "up", "demo"]
    playbook = [str(PROGRAMS / "ansible-playbook"), "-i", INVENTORY, "gpuops.k8s.site"]
    for command in (lab, playbook):
        code = subprocess.run(command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, check=False).returncode
        if code != 0:
            print(f"make demo: {' '.join([Path(command[0]).name, *command[1:]])} failed (exit {code})", file=sys.stderr)
            return 1
    evidence = read_evidence(OUTPUT / "evidence.json")
    if evidence is None:
        print(f"make demo: {OUTPUT / 'evidence.json'} is missing or not evidence, so nothing is proven", file=sys.stderr)
        return 1
    show(evidence, time.monotonic() - started)
    return 0 if evidence["verdict"] == "pass" else 1


def read_evidence(path: Path) -> dict[str, Any] | None:
    """The evidence of a run, None where there is none."""
    try:
        evidence = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return evidence if isinstance(evidence, dict) and evidence.get("schema") == 1 else None


def show(evidence: dict[str, Any], seconds: float) -> None:
    """Print the equation of every node, the verdict and where to go on."""
    table = Table(title=f"Kubernetes {evidence['cluster']['version']}: every GPU, from the PCI bus to a pod")
    for heading in ("node", "resource"):
        table.add_column(heading, no_wrap=True)
    for heading in ("physical", "capacity", "allocatable", "opened"):
        table.add_column(heading, justify="right")
    for node in evidence["nodes"]:
        for resource in node["resources"]:
            numbers = [str(resource[key]) for key in ("physical", "capacity", "allocatable", "opened")]
            table.add_row(node["name"], resource["name"], *numbers)
        if not node["resources"]:
            table.add_row(node["name"], "no GPU", "0", "0", "0", "0")
    totals = evidence["totals"]
    checks = totals["checks"]
    colour = "green" if evidence["verdict"] == "pass" else "red"
    console = Console(soft_wrap=True)
    console.print()
    console.print(table)
    console.print(
        f"[bold {colour}]{evidence['verdict']}[/]: {totals['gpus']} GPUs on {totals['nodes']} nodes, "
        f"{checks['pass']} checks held, {checks['fail']} failed, {checks['skip']} skipped; "
        f"verification {evidence['seconds']:.0f} s, all in all {seconds:.0f} s"
    )
    console.print(
        "\nNext:\n"
        f"  xdg-open {OUTPUT.relative_to(CHECKOUT)}/report.html          the report, one page\n"
        "  .venv/bin/gpuops-lab fault apply nv-1 device-missing && \\\n"
        f"    .venv/bin/ansible-playbook -i {INVENTORY} gpuops.k8s.verify   see it go red\n"
        "  make down                                 remove the lab without a trace",
        highlight=False,
    )


if __name__ == "__main__":
    sys.exit(main())
