# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated libnvidia-ml for programs that load the vendor's library; made where a C compiler is at hand."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from pathlib import Path

from gpuops_lab.command import run
from gpuops_lab.hardware import nvidia
from gpuops_lab.hardware.machine import Gpu, Machine
from gpuops_lab.hardware.writer import TreeWriter
from gpuops_lab.paths import cache

SOURCE = Path(__file__).with_name("nvml.c")
TABLE = "usr/share/gpuops-lab/nvml.tsv"
FAULTS = "usr/share/gpuops-lab/nvml-faults"  # what nvml.c reads at each call; its first comment says how
_CAPABILITIES = {
    "volta": (7, 0),
    "turing": (7, 5),
    "ampere": (8, 0),
    "ada-lovelace": (8, 9),
    "hopper": (9, 0),
    "blackwell": (10, 0),
}


def library_folder() -> str:
    """Where Debian's loader looks for libraries, below a root."""
    return f"usr/lib/{platform.machine()}-linux-gnu"


def compiled() -> Path | None:
    """The compiled library in the cache; None without a compiler.

    Raises:
        LabError: There is a compiler, and it failed.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    name = hashlib.sha256(SOURCE.read_bytes() + platform.machine().encode()).hexdigest()[:16]
    target = cache() / "libraries" / f"libnvidia-ml-{name}.so"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        work = target.with_name(f".{target.name}.{os.getpid()}")
        soname = "-Wl,-soname,libnvidia-ml.so.1"
        command = [compiler, "-O1", "-fPIC", "-shared", soname, "-o", str(work), str(SOURCE), "-ldl"]
        run(command, what="compile the simulated libnvidia-ml", hint="install gcc and libc6-dev", timeout=120)
        os.replace(work, target)
    return target


def write(machine: Machine, writer: TreeWriter) -> None:
    """Write the library under its version and its usual name, and the table that it reads."""
    gpus = nvidia.driven(machine)
    library = compiled() if gpus else None
    if library is None:
        return
    version = gpus[0].driver_version
    writer.file(TABLE, "\n".join([version, *(_row(gpu) for gpu in gpus)]))
    folder = library_folder()
    writer.file(f"{folder}/libnvidia-ml.so.{version}", library.read_bytes(), mode=0o755)
    writer.link(f"{folder}/libnvidia-ml.so.1", f"{folder}/libnvidia-ml.so.{version}")


def _row(gpu: Gpu) -> str:
    function = gpu.function
    major, minor = _CAPABILITIES.get(gpu.architecture, (0, 0))
    subsystem = f"{function.subsystem_device}{function.subsystem_vendor}"
    memory = gpu.memory_bytes // 1024**2
    cells = (
        gpu.address,
        gpu.uuid,
        gpu.product,
        gpu.minor,
        memory,
        major,
        minor,
        function.device,
        subsystem,
        function.numa_node,
    )
    return "\t".join(str(cell) for cell in cells)
