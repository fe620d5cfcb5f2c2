# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a command in a mount namespace of its own that shows a catalogue machine's hardware.

Arguments: a folder with the machine's trees and a C(device-plugins) folder, then the command.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpuops_lab.node.boot import make_device_nodes, mount

_HOST_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")


def main(arguments: list[str]) -> int:
    """Enter the namespace and become the command; exit status 127 if it cannot be run."""
    folder, command = Path(arguments[0]), arguments[1:]
    os.unshare(os.CLONE_NEWNS)
    mount("none", "/", "", "rec private")
    work = folder / "work"
    work.mkdir()
    mount("tmpfs", work, "tmpfs", "nosuid")
    _show_sys(folder)
    _show_proc(folder)
    _show_devices(folder, work)
    for path in (Path("/var/lib"), Path("/run"), Path("/usr")):
        _make_writable(path, work, [folder / "root/usr"] if path == Path("/usr") else [])
    _DEVICE_PLUGINS.mkdir(parents=True, exist_ok=True)
    mount(folder / "device-plugins", _DEVICE_PLUGINS, "", "bind")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127


def _show_sys(folder: Path) -> None:
    mount("overlay", "/sys", "overlay", "ro", f"lowerdir={folder / 'sys'}:/sys")


def _show_proc(folder: Path) -> None:
    for name in ("driver", "modules"):
        if Path("/proc", name).exists():
            mount(folder / "proc" / name, Path("/proc", name), "", "bind")


def _show_devices(folder: Path, work: Path) -> None:
    root = work / "devices"
    (root / "dev").mkdir(parents=True)
    for name in _HOST_DEVICES:
        if Path("/dev", name).exists():
            (root / "dev" / name).touch()
            mount(Path("/dev", name), root / "dev" / name, "", "bind")
    for name in ("pts", "shm"):
        if Path("/dev", name).is_dir():
            (root / "dev" / name).mkdir()
            mount(Path("/dev", name), root / "dev" / name, "", "bind")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (root / "dev" / name).symlink_to(f"/proc/self/fd/{number}")
    (root / "dev/fd").symlink_to("/proc/self/fd")
    make_device_nodes(root, folder)
    mount(root / "dev", "/dev", "", "bind rec")


def _make_writable(path: Path, work: Path, above: list[Path]) -> None:
    """Let the command write below a folder, and see further files there, without a trace on the host."""
    upper, scratch = work / f"upper{path.name}", work / f"work{path.name}"
    upper.mkdir()
    scratch.mkdir()
    layers = ":".join(str(layer) for layer in (*above, path) if layer.is_dir())
    mount("overlay", path, "overlay", "", f"lowerdir={layers},upperdir={upper},workdir={scratch}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
