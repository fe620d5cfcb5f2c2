# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make lint`: every static check, all of them even when one fails; 0 only when all pass."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import sanity

CHECKOUT = Path(__file__).resolve().parent.parent
PROGRAMS = CHECKOUT / ".venv" / "bin"
ENVIRONMENT = {
    **os.environ,
    "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build" / "collections"),
    "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
    # Not the user's own folder, where an installed collection of this name would be checked in place of this one.
    "ANSIBLE_HOME": str(CHECKOUT / "build" / "lint"),
    "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
}


def command(*words: str) -> Callable[[], bool]:
    """A check that is one program of the virtual environment."""

    def check() -> bool:
        arguments = [str(PROGRAMS / words[0]), *words[1:]]
        return subprocess.run(arguments, cwd=CHECKOUT, env=ENVIRONMENT, stdin=subprocess.DEVNULL, check=False).returncode == 0

    return check


CHECKS: dict[str, Callable[[], bool]] = {
    "ruff": command("ruff", "check", "."),
    "ruff format": command("ruff", "format", "--check", "."),
    "mypy (lab)": command("mypy", "lab/gpuops_lab", "tools"),
    "mypy (collection)": command("mypy", "build/collections/ansible_collections/gpuops/k8s/plugins"),
    "import-linter": command("lint-imports", "--no-cache"),
    "yamllint": command("yamllint", "--strict", "."),
    "ansible-lint": command("ansible-lint", "--strict", "-q"),
    "changelog": command("antsibull-changelog", "lint"),
    "docs": command("antsibull-docs", "lint-collection-docs", "--plugin-docs", "--skip-rstcheck", "."),
    "vendor tables": command("python", "tools/vendor_tables.py", "--check"),
    "sanity": sanity.check,
}


def main(names: list[str]) -> int:
    """Run the named checks, all without names."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(f"lint: unknown check {unknown[0]!r}, known: {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or CHECKS:
        started = time.monotonic()
        print(f"== {name}", flush=True)
        if not CHECKS[name]():
            failed.append(name)
        print(f"== {name}: {'FAILED' if name in failed else 'ok'}, {time.monotonic() - started:.0f} s", flush=True)
    print(f"lint: failed: {', '.join(failed)}" if failed else "lint: all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
