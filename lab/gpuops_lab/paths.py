# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things are: sources in the checkout, caches of the user, run-time data of a lab."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuops_lab.errors import LabError

LAB_FOLDER = Path(__file__).resolve().parent.parent
CHECKOUT = LAB_FOLDER.parent
RUN_TIME_ROOT = Path("/var/lib/gpuops")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")


def cache() -> Path:
    """Folder for things that are expensive to make and the same for every checkout."""
    base = os.environ.get("GPUOPS_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuops"
    )
    return Path(base)


def check_name(name: str) -> str:
    """Return a lab's name if it can stand in the names of links, cgroups and tables.

    Raises:
        LabError: It cannot.
    """
    if not _NAME.fullmatch(name):
        raise LabError(
            f"lab name {name!r} cannot be used", "take 1 to 20 lower-case letters, digits and inner hyphens, such as demo"
        )
    return name


def state_folder(name: str) -> Path:
    """Folder in the checkout for what users read: kubeconfig, inventory, state, logs."""
    return CHECKOUT / "build" / "lab" / name


def run_time_folder(name: str) -> Path:
    """Folder outside the checkout for node roots and the marks that clean-up works from."""
    return RUN_TIME_ROOT / name


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file beside its place, then rename it, so that nobody sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def folder_made_whole(target: Path) -> Iterator[Path]:
    """Give a folder to fill that takes its final name only when the block ends well.

    What an interrupted run left beside the target is removed first.
    """
    import shutil

    target.parent.mkdir(parents=True, exist_ok=True)
    work = target.with_name(f".{target.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        yield work
        os.replace(work, target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
