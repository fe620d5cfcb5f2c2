# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes files, links and overlay marks below one folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpuops_lab.errors import LabError


class TreeWriter:
    """Writes into a folder; every path is relative to it.

    As root it also sets the marks by which an overlay hides what lies below; without root the tree can be
    read but not laid over another one.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._marks = os.geteuid() == 0
        self._made: set[Path] = set()
        root.mkdir(parents=True, exist_ok=True)

    def file(self, path: str, content: str | bytes | int, mode: int = 0o644) -> None:
        """Write one file. Text without a line end gets one, as sysfs files have it."""
        target = self.root / path
        self._make(target.parent)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            text = str(content)
            target.write_text(text if not text or text.endswith("\n") else f"{text}\n", encoding="utf-8")
        target.chmod(mode)

    def files(self, folder: str, content: dict[str, str | bytes | int]) -> None:
        """Write several files of one folder."""
        for name, value in content.items():
            self.file(f"{folder}/{name}", value)

    def _make(self, folder: Path) -> None:
        if folder not in self._made:
            folder.mkdir(parents=True, exist_ok=True)
            self._made.add(folder)

    def folder(self, path: str) -> None:
        """Make a folder."""
        (self.root / path).mkdir(parents=True, exist_ok=True)

    def link(self, path: str, target: str) -> None:
        """Make a relative link to another path of the tree."""
        place = self.root / path
        self._make(place.parent)
        place.symlink_to(os.path.relpath(target, os.path.dirname(path)))

    def opaque(self, path: str) -> None:
        """Make a folder that hides the folder of the same name in lower layers."""
        self.folder(path)
        if not self._marks:
            return
        try:
            os.setxattr(self.root / path, "trusted.overlay.opaque", b"y")
        except OSError as error:
            raise LabError(
                f"marking {self.root / path} as opaque failed: {error.strerror}",
                "simulated hardware needs a file system with trusted attributes, such as ext4 or tmpfs",
            ) from error

    def hide(self, path: str) -> None:
        """Make lower layers' entry of this name invisible, unless this tree has one of its own."""
        target = self.root / path
        if self._marks and not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(target, stat.S_IFCHR, os.makedev(0, 0))
