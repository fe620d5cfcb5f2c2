# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layer of a node's root that all nodes share: the programs, laid out as in the node."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from gpuops_lab.paths import cache, folder_made_whole

_IN_BIN = ("containerd", "containerd-shim-runc-v2", "ctr", "kubelet", "kube-proxy")
_IN_CNI = ("bridge", "host-local", "loopback", "portmap")


def programs_layer(programs: dict[str, Path]) -> Path:
    """Folder with the node's programs at their places in the node, linked and not copied."""
    wanted = {f"usr/local/bin/{name}": programs[name] for name in _IN_BIN}
    wanted.update({f"opt/cni/bin/{name}": programs[name] for name in _IN_CNI})
    return _layer("programs", wanted)


def _layer(kind: str, files: dict[str, Path]) -> Path:
    digest = hashlib.sha256()
    for path, source in sorted(files.items()):
        status = source.stat()
        digest.update(f"{path} {source} {status.st_size} {status.st_mtime_ns}\n".encode())
    target = cache() / "layers" / f"{kind}-{digest.hexdigest()[:16]}"
    if not target.is_dir():
        with folder_made_whole(target) as work:
            for path, source in files.items():
                _link(source, work / path)
    return target


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)  # another file system
    target.chmod(target.stat().st_mode | 0o444)
