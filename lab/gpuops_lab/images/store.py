# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd's own folder with all images unpacked: made once, then linked into every node, which so starts with them."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuops_lab.command import last_line, run, succeeds
from gpuops_lab.errors import LabError
from gpuops_lab.images.build import ImageArchive
from gpuops_lab.paths import cache, folder_made_whole

_NAMESPACE = "k8s.io"
_START_TIMEOUT = 30.0
_PARENT_DEATH_SIGNAL = 1
_libc = ctypes.CDLL(None)


def ensure(archive: ImageArchive, programs: dict[str, Path], report: Callable[[str], None]) -> Path:
    """The folder for these images and this containerd, made if the cache lacks it.

    Raises:
        LabError: containerd does not start, or refuses the archive.
    """
    version = hashlib.sha256(f"{archive.digest} {programs['containerd'].parent.name}".encode()).hexdigest()[:16]
    target = cache() / "image-stores" / f"containerd-{version}"
    if not target.is_dir():
        report("unpack the lab's images, about 10 s")
        with folder_made_whole(target) as work, _containerd(programs, work) as address:
            run(
                [programs["ctr"], "--address", address, "--namespace", _NAMESPACE, "images", "import", archive.path],
                what="import the lab's images",
                timeout=300,
            )
    return target


@contextmanager
def _containerd(programs: dict[str, Path], root: Path) -> Iterator[str]:
    """A containerd on a folder of its own; gives its address and ends it afterwards."""
    with tempfile.TemporaryDirectory(prefix="gpuops-containerd-") as state:
        address = f"{state}/containerd.sock"
        configuration = Path(state, "config.toml")
        # The runtime service is not wanted here, and would look for the network of a node.
        configuration.write_text('version = 3\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n', encoding="utf-8")
        log = Path(state, "log")
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [
                    programs["containerd"],
                    "--config",
                    configuration,
                    "--root",
                    root,
                    "--state",
                    f"{state}/state",
                    "--address",
                    address,
                ],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={"PATH": f"{programs['containerd'].parent}:/usr/sbin:/usr/bin:/sbin:/bin"},
                preexec_fn=lambda: _libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL),
            )
        try:
            _wait(programs["ctr"], address, process, log)
            yield address
        finally:
            process.terminate()
            process.wait()


def _wait(ctr: Path, address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    while not succeeds([ctr, "--address", address, "version"]):
        if process.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"cannot unpack images: containerd does not start: {last_line(log.read_text(errors='replace'))}")
        time.sleep(0.1)


def link_into(store: Path, target: Path) -> None:
    """Give a node its own containerd folder: files are links, because containers never write into image layers; the
    databases, which containerd does write, are copies.
    """
    target.mkdir(parents=True, exist_ok=True)
    if not succeeds(["cp", "--archive", "--link", f"{store}/.", target]):  # another file system
        run(["cp", "--archive", f"{store}/.", target], what=f"copy the image store to {target}", timeout=300)
    for database in store.rglob("*.db"):
        copy = target / database.relative_to(store)
        copy.unlink()
        shutil.copy2(database, copy)
        os.chmod(copy, 0o600)
