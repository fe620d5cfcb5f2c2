# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading files below a root: what is missing or unreadable is an empty answer, never an exception."""

from __future__ import annotations

import errno
import glob
import os
import stat
from typing import Dict, List, Optional

READ_LIMIT = 4 * 1024**2  # pci.ids has 1.5 MiB, nothing else that is read comes near
# What is not there, or went away while it was read, is no trouble; everything else is worth telling.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO)


class Root:
    """The file system of a node, or a copy of it in a folder."""

    def __init__(self, path: str = "/") -> None:
        self.path = path.rstrip("/") or "/"
        self.unreadable: Dict[str, str] = {}  # path to the reason, for what is there and cannot be read

    @property
    def is_live(self) -> bool:
        """Whether this is the running system itself, whose programs may be run."""
        return self.path == "/"

    def join(self, path: str) -> str:
        """The place of an absolute node path below the root."""
        return path if self.is_live else self.path + path

    def read(self, path: str) -> str:
        """The text of a file without white space around it, "" if it cannot be read."""
        return self.read_bytes(path).decode("utf-8", "replace").strip()

    def read_bytes(self, path: str) -> bytes:
        """The first bytes of a file, at most READ_LIMIT, empty if it cannot be read."""
        # Thousands of small files are read: the system's own calls take a third of the time that open() does.
        chunks: List[bytes] = []
        size = 0
        try:
            handle = os.open(self.join(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._note(path, error)
            return b""
        try:
            while size < READ_LIMIT:
                chunk = os.read(handle, READ_LIMIT - size if size else 4096)
                if not chunk:
                    break
                chunks.append(chunk)
                size += len(chunk)
        except OSError as error:
            self._note(path, error)
            return b""
        finally:
            os.close(handle)
        return b"".join(chunks)

    def number(self, path: str) -> Optional[int]:
        """The number in a file, decimal or hexadecimal with C(0x), None if there is none."""
        text = self.read(path)
        try:
            return int(text, 16 if text[:2].lower() == "0x" else 10)
        except ValueError:
            return None

    def _note(self, path: str, error: OSError) -> None:
        if error.errno not in _ABSENT:
            self.unreadable[path] = error.strerror or str(error)

    def names(self, path: str) -> List[str]:
        """Sorted names in a folder, empty if there is none."""
        try:
            return sorted(os.listdir(self.join(path)))
        except OSError as error:
            self._note(path, error)
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
