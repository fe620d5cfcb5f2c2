# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The four packages of the NVIDIA Container Toolkit, packed from the vendor's own programs."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from gpuops_lab.packages import repository
from gpuops_lab.packages.debian_package import DebianPackage
from gpuops_lab.paths import cache, folder_made_whole
from gpuops_lab.programs.components import NVIDIA_TOOLKIT

VERSION = f"{NVIDIA_TOOLKIT}-1"
FOLDER = "usr/share/gpuops-packages/nvidia"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_NOT_HERE = "The lab's nodes take devices by CDI, which needs nothing of this package.\n"


def packages(programs: dict[str, Path]) -> list[DebianPackage]:
    """The packages, named and pinned to each other as the vendor's are.

    Args:
        programs: nvidia-ctk, nvidia-cdi-hook and nvidia-container-runtime.
    """
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())

    def package(name: str, description: str, files: dict[str, Path | str], *depends: str) -> DebianPackage:
        return DebianPackage(name, VERSION, architecture, description, files, depends)

    def note(name: str) -> dict[str, Path | str]:
        return {f"usr/share/doc/{name}/README": _NOT_HERE}

    return [
        package(
            "nvidia-container-toolkit-base", "NVIDIA Container Toolkit: programs",
            {f"usr/bin/{name}": path for name, path in programs.items()}, "libc6",
        ),
        package("libnvidia-container1", "NVIDIA container runtime library", note("libnvidia-container1"), "libc6"),
        package(
            "libnvidia-container-tools", "NVIDIA container runtime library: tools", note("libnvidia-container-tools"),
            f"libnvidia-container1 (= {VERSION})",
        ),
        package(
            "nvidia-container-toolkit", "NVIDIA Container Toolkit", note("nvidia-container-toolkit"),
            f"nvidia-container-toolkit-base (= {VERSION})", f"libnvidia-container-tools (= {VERSION})",
        ),
    ]  # fmt: skip


def layer(programs: dict[str, Path]) -> Path:
    """A layer of a node's root with the signed repository; made once for the same programs."""
    digest = hashlib.sha256(VERSION.encode())
    for source in (Path(__file__), Path(repository.__file__), *programs.values()):
        digest.update(source.read_bytes())
    target = cache() / "layers" / f"packages-{digest.hexdigest()[:16]}"
    if not target.is_dir():
        with folder_made_whole(target) as work:
            repository.write(work / FOLDER, packages(programs))
    return target
