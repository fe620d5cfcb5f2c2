# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading files below a root: what is missing or unreadable is an empty answer, never an exception."""

from __future__ import annotations

import glob
import os
import stat
from typing import List


class Root:
    """The file system of a node, or a copy of it in a folder."""

    def __init__(self, path: str = "/") -> None:
        self.path = path.rstrip("/") or "/"

    @property
    def is_live(self) -> bool:
        """Whether this is the running system itself, whose programs may be run."""
        return self.path == "/"

    def join(self, path: str) -> str:
        """The place of an absolute node path below the root."""
        return path if self.is_live else self.path + path

    def read(self, path: str) -> str:
        """The text of a file without white space around it, "" if it cannot be read."""
        try:
            with open(self.join(path), encoding="utf-8", errors="replace") as stream:
                return stream.read().strip()
        except OSError:
            return ""

    def names(self, path: str) -> List[str]:
        """Sorted names in a folder, empty if there is none."""
        try:
            return sorted(os.listdir(self.join(path)))
        except OSError:
            return []

    def link_name(self, path: str) -> str:
        """The last part of a link's target, "" if it is no link."""
        try:
            return os.path.basename(os.readlink(self.join(path)).rstrip("/"))
        except OSError:
            return ""

    def exists(self, path: str) -> bool:
        """Whether a path leads to something."""
        return os.path.exists(self.join(path))

    def is_device(self, path: str) -> bool:
        """Whether a path is a character device; in a copied root any file of that name counts."""
        try:
            mode = os.stat(self.join(path)).st_mode
        except OSError:
            return False
        return stat.S_ISCHR(mode) or not self.is_live

    def device_number(self, path: str) -> str:
        """Major:minor of a character device in hex, as stat(1) prints it; "" if it is none."""
        try:
            status = os.stat(self.join(path))
        except OSError:
            return ""
        number = f"{os.major(status.st_rdev):x}:{os.minor(status.st_rdev):x}"
        return number if stat.S_ISCHR(status.st_mode) else ""

    def match(self, pattern: str) -> List[str]:
        """Sorted node paths that fit a pattern."""
        prefix = "" if self.is_live else self.path
        return sorted(found[len(prefix) :] for found in glob.glob(glob.escape(prefix) + pattern))
