# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control groups of a lab, on cgroup v1 and v2: they hold its processes, and find them again after any crash."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from gpuops_lab.errors import LabError

ROOT = Path("/sys/fs/cgroup")
_INHERITED_BY_COPY = ("cpuset.cpus", "cpuset.mems")


def is_unified() -> bool:
    """Whether this host has cgroup v2 alone."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """Folders of all hierarchies that a lab makes groups in."""
    if is_unified():
        return [ROOT]
    return sorted(path.parent for path in ROOT.glob("*/cgroup.procs"))


def controllers() -> list[str]:
    """Names of the v1 hierarchies that a node mounts anew; beside them some hosts have v2 without controllers."""
    return [path.name for path in hierarchies() if path.name != "unified"]


def create(group: str) -> None:
    """Make a group in each hierarchy, ready to take processes and to be delegated."""
    for hierarchy in hierarchies():
        folder = hierarchy
        for part in group.split("/"):
            parent, folder = folder, folder / part
            if is_unified():
                _delegate(parent)
            folder.mkdir(exist_ok=True)
            _copy_from_parent(parent, folder)


def _delegate(folder: Path) -> None:
    available = (folder / "cgroup.controllers").read_text(encoding="utf-8").split()
    control = folder / "cgroup.subtree_control"
    wanted = [name for name in available if name not in control.read_text(encoding="utf-8").split()]
    if wanted:
        control.write_text(" ".join(f"+{name}" for name in wanted), encoding="utf-8")


def _copy_from_parent(parent: Path, folder: Path) -> None:
    """On v1 a new cpuset is empty and takes no process until it has processors and memory nodes."""
    for name in _INHERITED_BY_COPY:
        path = folder / name
        if not is_unified() and path.exists() and not path.read_text(encoding="utf-8").strip():
            path.write_text((parent / name).read_text(encoding="utf-8"), encoding="utf-8")


def enter(group: str) -> None:
    """Move the calling process into a group of each hierarchy."""
    for hierarchy in hierarchies():
        (hierarchy / group / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")


def processes(group: str) -> set[int]:
    """Ids of all processes in a group and below it."""
    found: set[int] = set()
    for hierarchy in hierarchies():
        for path in (hierarchy / group).rglob("cgroup.procs"):
            found.update(_read_ids(path))
    return found


def _read_ids(path: Path) -> Iterable[int]:
    try:
        return [int(line) for line in path.read_text(encoding="utf-8").split()]
    except OSError:
        return []  # the group went away between listing and reading


def end_processes(group: str, *, grace: float, timeout: float = 20.0) -> None:
    """Ask the processes of a group to end, kill those that stay, and wait until none is left.

    Args:
        group: Path below each hierarchy.
        grace: Seconds between asking and killing; 0 kills at once.
        timeout: Seconds until it is an error that some are left.

    Raises:
        LabError: Some processes survive.
    """
    started = time.monotonic()
    seen = processes(group)
    if grace:
        _signal_all(group, signal.SIGTERM)
    while left := processes(group) or {pid for pid in seen if _is_dying(pid, group)}:
        seen |= left
        _reap(left)
        passed = time.monotonic() - started
        if passed > timeout:
            raise LabError(f"processes of group {group} do not end: {sorted(left)}", "run `gpuops-lab down` again")
        if passed >= grace:
            _signal_all(group, signal.SIGKILL)
        time.sleep(0.02)


def _reap(pids: Iterable[int]) -> None:
    """Take leave of those that are children of this process: without it they stay in the table until it ends."""
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass


def _is_dying(pid: int, group: str) -> bool:
    """Whether a process has left its group's list and not yet the process table: it still holds mounts and namespaces."""
    try:
        return f"/{group}" in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    except OSError:
        return False


def _signal_all(group: str, number: signal.Signals) -> None:
    for pid in processes(group):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def remove(group: str) -> None:
    """Remove a group and all below it, from the bottom up; its processes must have ended."""
    for hierarchy in hierarchies():
        top = hierarchy / group
        if not top.is_dir():
            continue
        for folder in sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda p: -len(p.parts)):
            _remove_folder(folder)
        _remove_folder(top)
    _remove_empty_parents(group)


def _remove_folder(folder: Path, attempts: int = 100) -> None:
    """Remove one group; the kernel keeps it busy for a moment after its last process has ended."""
    for attempt in range(attempts):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if attempt == attempts - 1:
                raise LabError(f"cannot remove control group {folder}: {error.strerror}") from error
            time.sleep(0.02)
        else:
            return


def _remove_empty_parents(group: str) -> None:
    for parent in Path(group).parents:
        if parent != Path():
            for hierarchy in hierarchies():
                try:
                    (hierarchy / parent).rmdir()
                except OSError:
                    pass  # another lab lives there
