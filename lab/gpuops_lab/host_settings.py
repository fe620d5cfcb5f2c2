# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the host's kernel that labs need; what they were before is put back when the last lab is gone."""

from __future__ import annotations

from pathlib import Path

_PROC_SYS = Path("/proc/sys")
FORWARDING = "net/ipv4/ip_forward"
INOTIFY_INSTANCES = "fs/inotify/max_user_instances"
# Each node's systemd, containerd and kubelet take about 14 of them; the usual limit of 128 ends with the ninth node.
_MINIMUM = {FORWARDING: 1, INOTIFY_INSTANCES: 8192}


def read() -> dict[str, int]:
    """The present values by name below /proc/sys."""
    return {name: int((_PROC_SYS / name).read_text(encoding="utf-8")) for name in _MINIMUM}


def raise_to_minimum() -> None:
    """Set what is too low; what is enough stays as it is."""
    for name, value in read().items():
        if value < _MINIMUM[name]:
            (_PROC_SYS / name).write_text(f"{_MINIMUM[name]}\n", encoding="utf-8")


def restore(before: dict[str, int]) -> None:
    """Put values back that raise_to_minimum() has changed; a value that somebody else has set since is left."""
    present = read()
    for name, value in before.items():
        if value < _MINIMUM[name] and present[name] == _MINIMUM[name]:
            (_PROC_SYS / name).write_text(f"{value}\n", encoding="utf-8")
