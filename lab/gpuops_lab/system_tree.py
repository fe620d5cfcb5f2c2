# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Minimal Debian trees that nodes' roots start from, made once by debootstrap and cached."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuops_lab.command import run
from gpuops_lab.errors import LabError
from gpuops_lab.paths import cache, folder_made_whole

SUITES = {"debian-12": "bookworm", "debian-13": "trixie"}
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "python3-apt", "ca-certificates", "iproute2",
    "kmod", "procps", "mount", "nftables", "conntrack", "ethtool", "pciutils", "runc", "libseccomp2", "less",
)  # fmt: skip
MASKED_UNITS = (
    "apt-daily-upgrade.timer", "apt-daily.timer", "console-getty.service", "dpkg-db-backup.timer", "e2scrub_all.timer",
    "fstrim.timer", "getty@tty1.service", "systemd-journal-flush.service", "systemd-networkd-wait-online.service",
    "systemd-tmpfiles-clean.timer", "systemd-udevd.service", "systemd-udev-trigger.service",
    "systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-update-utmp.service",
    "systemd-binfmt.service", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "dev-hugepages.mount",
    "systemd-modules-load.service", "modprobe@.service", "systemd-sysctl.service", "systemd-firstboot.service",
    "proc-sys-fs-binfmt_misc.automount", "run-rpc_pipefs.mount", "systemd-remount-fs.service",
)  # fmt: skip
DEFAULT_MIRROR = "http://deb.debian.org/debian"


@dataclass(frozen=True)
class SystemTree:
    """A cached tree of one Debian release."""

    system: str
    path: Path


def ensure(system: str, report: Callable[[str], None]) -> SystemTree:
    """Return the tree of a system, making it if the cache lacks it.

    Args:
        system: debian-12 or debian-13.
        report: Receives one progress line.

    Raises:
        LabError: Unknown system, debootstrap missing or failed.
    """
    if system not in SUITES:
        raise LabError(f"unknown system {system!r}", f"use one of: {', '.join(SUITES)}")
    target = cache() / "trees" / f"{system}-{_content_hash()}"
    if not target.is_dir():
        report(f"make {system} root tree with debootstrap, about 45 s")
        started = time.monotonic()
        with folder_made_whole(target) as work:
            _debootstrap(SUITES[system], work)
            _prepare(work)
        report(f"make {system} root tree done in {time.monotonic() - started:.0f} s")
    return SystemTree(system, target)


def _content_hash() -> str:
    return hashlib.sha256("\n".join((*PACKAGES, *MASKED_UNITS)).encode()).hexdigest()[:12]


def mirror() -> str:
    """The Debian mirror of this machine, so that an unusual one keeps working; the public one otherwise."""
    named = os.environ.get("GPUOPS_DEBIAN_MIRROR")
    if named:
        return named
    for source in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        if source.exists():
            found = re.search(r"^(?:URIs:|deb(?:\s+\[[^\]]*\])?)\s+(\S*debian/?)(?:\s|$)", source.read_text(), re.MULTILINE)
            if found:
                return found[1]
    return DEFAULT_MIRROR


def _debootstrap(suite: str, target: Path) -> None:
    run(
        ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, target, mirror()],
        what=f"make a {suite} root tree from {mirror()}",
        hint="see debootstrap/debootstrap.log there; GPUOPS_DEBIAN_MIRROR names another mirror",
        timeout=900,
    )


def _prepare(tree: Path) -> None:
    """Turn a bare Debian tree into what a node needs: no waiting units, no identity of its own."""
    units = tree / "etc/systemd/system"
    for unit in MASKED_UNITS:
        link = units / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    wanted = units / "multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    ssh = wanted / "ssh.service"
    if not ssh.is_symlink():
        ssh.symlink_to("/lib/systemd/system/ssh.service")
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (tree / "etc/ssh/sshd_config.d/gpuops.conf").write_text("UsePAM no\nPermitRootLogin prohibit-password\n")
    (tree / "etc/machine-id").write_text("")
    for archive in (tree / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
