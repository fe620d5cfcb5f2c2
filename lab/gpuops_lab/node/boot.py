# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot of a node: from a process in new namespaces to systemd as PID 1 on the node's own root.

Runs once for each boot. Paths are the host's until C(pivot_root).
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import stat
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

_libc = ctypes.CDLL(None, use_errno=True)
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_FLAGS = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "bind": 4096, "rec": 16384, "private": 1 << 18, "shared": 1 << 20}
_HOST_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse")
_ENVIRONMENT = {"container": "gpuops-lab", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


@dataclass(frozen=True)
class BootPlan:
    """What a boot needs to know; written as boot.json into the node's folder."""

    folder: str
    lower: list[str]  # layers of the root, topmost first
    hardware: str  # folder with sys/, proc/ and device_nodes.json
    hostname: str
    network_namespace: str
    control_group: str
    supervisor_group: str
    hierarchies: list[str]  # v1 controllers, empty on cgroup v2

    def write(self) -> Path:
        """Write the plan into the node's folder."""
        path = Path(self.folder) / "boot.json"
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        return path


def read_plan(folder: str) -> BootPlan:
    """Read the plan that C(BootPlan.write) left."""
    return BootPlan(**json.loads(Path(folder, "boot.json").read_text(encoding="utf-8")))


def boot(plan: BootPlan) -> NoReturn:
    """Mount the node's root and become systemd. The caller is PID 1 of the new namespaces."""
    root = Path(plan.folder) / "root"
    mount("none", "/", "", "rec private")
    _mount_root(plan, root)
    _mount_devices(root, Path(plan.hardware))
    _mount_sys(root, Path(plan.hardware), plan.hierarchies)
    _mount_proc(root, Path(plan.hardware))
    for name in ("run", "tmp"):
        mount("tmpfs", root / name, "tmpfs", "nosuid nodev", "mode=1777" if name == "tmp" else "mode=755")
    _pivot(root)
    _know_libraries()
    socket.sethostname(plan.hostname)
    os.setsid()
    os.execve("/lib/systemd/systemd", ["/lib/systemd/systemd", "--system", *_systemd_options(plan)], _ENVIRONMENT)


def _know_libraries() -> None:
    """Enter the vendor's library into the loader's cache, as the installation of a driver does."""
    if any(Path("/usr/lib").glob("*-linux-gnu/libnvidia-ml.so.1")):
        subprocess.run(["/sbin/ldconfig"], stdin=subprocess.DEVNULL, check=False)


def _systemd_options(plan: BootPlan) -> list[str]:
    """In a container systemd takes from its own command line what it else reads from the kernel's.

    On hosts with the v1 hierarchies it must not mix them with v2, which the kubelet then could not follow.
    """
    if not plan.hierarchies:
        return []
    return [
        "systemd.unified_cgroup_hierarchy=0",
        "systemd.legacy_systemd_cgroup_controller=1",
        "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1",
    ]


def mount(source: str | Path, target: str | Path, kind: str, flags: str = "", data: str = "") -> None:
    """mount(2).

    Raises:
        OSError: With the target in it.
    """
    number = sum(_FLAGS[flag] for flag in flags.split())
    arguments = [os.fsencode(str(part)) for part in (source, target, kind)]
    if _libc.mount(*arguments, ctypes.c_ulong(number), data.encode()) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {kind or flags}: {os.strerror(code)}", str(target))


def _bind(source: Path, target: Path, flags: str = "bind") -> None:
    mount(source, target, "", flags)


def _mount_root(plan: BootPlan, root: Path) -> None:
    folder = Path(plan.folder)
    layers = ":".join(plan.lower)
    mount("overlay", root, "overlay", "", f"lowerdir={layers},upperdir={folder / 'upper'},workdir={folder / 'work'}")
    # The runtime's own overlays cannot lie on an overlay.
    for name in ("containerd", "kubelet"):
        target = root / "var/lib" / name
        target.mkdir(parents=True, exist_ok=True)
        _bind(folder / name, target)
    for name in ("dev", "proc", "sys", "run", "tmp", "mnt", "var/log/pods"):
        (root / name).mkdir(parents=True, exist_ok=True)


def _mount_devices(root: Path, hardware: Path) -> None:
    devices = root / "dev"
    mount("tmpfs", devices, "tmpfs", "nosuid", "mode=755")
    for name in _HOST_DEVICES:
        if Path("/dev", name).exists():
            (devices / name).touch()
            _bind(Path("/dev", name), devices / name)
    for name in ("pts", "shm", "mqueue"):
        (devices / name).mkdir()
    mount("devpts", devices / "pts", "devpts", "nosuid noexec", "newinstance,ptmxmode=0666,mode=620,gid=5")
    mount("tmpfs", devices / "shm", "tmpfs", "nosuid nodev")
    mount("mqueue", devices / "mqueue", "mqueue", "nosuid nodev noexec")
    for name, target in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1")):
        (devices / name).symlink_to(target)
    (devices / "stderr").symlink_to("fd/2")
    make_device_nodes(root, hardware)


def make_device_nodes(root: Path, hardware: Path) -> None:
    """Make the simulated device nodes that device_nodes.json lists, below a root."""
    for entry in json.loads((hardware / "device_nodes.json").read_text(encoding="utf-8")):
        path = root / entry["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if "link" in entry:
            path.symlink_to(entry["link"])
            continue
        os.mknod(path, stat.S_IFCHR, os.makedev(entry["major"], entry["minor"]))
        path.chmod(int(entry["mode"], 8))


def _mount_sys(root: Path, hardware: Path, hierarchies: list[str]) -> None:
    target = root / "sys"
    mount("sysfs", target, "sysfs", "nosuid nodev noexec")
    # Real entries stay, because the kubelet reads them; the opaque folders of the simulated tree hide the host's devices.
    mount("overlay", target, "overlay", "ro", f"lowerdir={hardware / 'sys'}:{target}")
    groups = target / "fs/cgroup"
    if not hierarchies:
        mount("cgroup2", groups, "cgroup2", "nosuid nodev noexec")
        return
    mount("tmpfs", groups, "tmpfs", "nosuid nodev noexec", "mode=755")
    for name in hierarchies:
        (groups / name).mkdir()
        mount("cgroup", groups / name, "cgroup", "", "none,name=systemd" if name == "systemd" else name)


def _mount_proc(root: Path, hardware: Path) -> None:
    mount("proc", root / "proc", "proc", "nosuid nodev noexec")
    _bind(hardware / "proc/driver", root / "proc/driver")
    # A kernel without loadable modules has no such file, and procfs takes no new one.
    if (root / "proc/modules").exists():
        _bind(hardware / "proc/modules", root / "proc/modules")


def _pivot(root: Path) -> None:
    os.chdir(root)
    if _libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"mnt") != 0:
        raise OSError(ctypes.get_errno(), "pivot_root", str(root))
    os.chroot(".")
    os.chdir("/")
    detach = 2
    if _libc.umount2(b"/mnt", detach) != 0:
        raise OSError(ctypes.get_errno(), "unmount the host's root", "/mnt")
    mount("none", "/", "", "rec shared")
