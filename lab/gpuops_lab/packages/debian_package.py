# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One Debian package out of files."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from gpuops_lab.command import run

_EPOCH = "1700000000"  # the same time in every package, so that the same input gives the same package


@dataclass(frozen=True)
class DebianPackage:
    """Name, version and what it holds."""

    name: str
    version: str
    architecture: str
    description: str
    files: dict[str, Path | str]  # path in the node to a file, or to text
    depends: tuple[str, ...] = field(default=())

    @property
    def file_name(self) -> str:
        """Name of the package's file."""
        return f"{self.name}_{self.version}_{self.architecture}.deb"

    def control(self) -> str:
        """The control file."""
        lines = [
            f"Package: {self.name}", f"Version: {self.version}", f"Architecture: {self.architecture}",
            "Maintainer: gpuops.k8s contributors <gpuops@example.org>", f"Description: {self.description}",
        ]  # fmt: skip
        return "\n".join([*lines, *([f"Depends: {', '.join(self.depends)}"] if self.depends else [])]) + "\n"


def build(package: DebianPackage, folder: Path) -> Path:
    """Write the package's file into a folder and return its path.

    Raises:
        LabError: dpkg-deb is missing or failed.
    """
    target = folder / package.file_name
    with tempfile.TemporaryDirectory() as work:
        root = Path(work)
        _write(root / "DEBIAN/control", package.control(), 0o644)
        for path, content in package.files.items():
            _write(root / path, content, 0o755 if isinstance(content, Path) else 0o644)
        for place in [root, *root.rglob("*")]:
            if place.is_dir():
                place.chmod(0o755)
            os.utime(place, (int(_EPOCH), int(_EPOCH)))
        command: list[str | Path] = [
            "env",
            f"SOURCE_DATE_EPOCH={_EPOCH}",
            "dpkg-deb",
            "--root-owner-group",
            "-Zgzip",
            "--build",
            root,
            target,
        ]
        run(command, what=f"pack {package.file_name}", hint="install dpkg", timeout=120)
    return target


def _write(path: Path, content: Path | str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    else:
        path.write_text(content, encoding="utf-8")
    path.chmod(mode)
