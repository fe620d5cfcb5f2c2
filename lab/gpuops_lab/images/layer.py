# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layers: tar files that come out the same from the same content, whatever the clock and the order of folders."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One file or link of a layer: bytes or a file to read, or the target of a symbolic link."""

    content: bytes | Path = b""
    mode: int = 0o644
    link: str = ""


Tree = Mapping[str, Entry]  # path without a leading slash to its entry


def pack(tree: Tree, folders: tuple[str, ...] = ()) -> bytes:
    """A layer with these files and the folders above them. Owner is root and every time is 0."""
    paths = set(folders)
    for path in tree:
        parts = path.split("/")[:-1]
        paths.update("/".join(parts[: depth + 1]) for depth in range(len(parts)))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(paths):
            info = tarfile.TarInfo(path)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if path == "tmp" else 0o755
            archive.addfile(info)
        for path, entry in sorted(tree.items()):
            _add(archive, path, entry)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, entry: Entry) -> None:
    info = tarfile.TarInfo(path)
    info.mode = entry.mode
    if entry.link:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.link, 0o777
        archive.addfile(info)
        return
    data = entry.content.read_bytes() if isinstance(entry.content, Path) else entry.content
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def digest(data: bytes) -> str:
    """The name by which registries and runtimes know content."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
