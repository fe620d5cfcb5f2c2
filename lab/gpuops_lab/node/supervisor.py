# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One process for each node that boots it, and boots it again when the node asks for a reboot.

C(reboot) of a PID namespace's init ends it with SIGHUP for a restart and SIGINT for power off.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

from gpuops_lab import control_groups
from gpuops_lab.node.boot import BootPlan, boot, read_plan

INIT_FILE = "init"
ENDED_FILE = "ended"
_BY_SIGNAL = 128  # added to the number of a signal, as shells do: an exit code of 1 must not look like SIGHUP
_NAMESPACES = os.CLONE_NEWNS | os.CLONE_NEWUTS | os.CLONE_NEWIPC | os.CLONE_NEWPID | os.CLONE_NEWCGROUP


def main() -> int:
    """Boot the node of the folder given as the only argument until it powers off."""
    folder = sys.argv[1]
    Path(folder, ENDED_FILE).unlink(missing_ok=True)
    while True:
        code = _boot_once(read_plan(folder))
        print(f"node ended: {_describe(code)}", flush=True)
        if code != _BY_SIGNAL + signal.SIGHUP:
            Path(folder, ENDED_FILE).touch()
            return 0


def _describe(code: int) -> str:
    if code > _BY_SIGNAL:
        return f"signal {code - _BY_SIGNAL}" + (", it boots again" if code == _BY_SIGNAL + signal.SIGHUP else "")
    return "it exited" if code == 0 else "it could not be booted"


def _boot_once(plan: BootPlan) -> int:
    """Boot and wait: 0 if the node exited, 128 and the number of the signal that ended it, 1 if it could not be booted."""
    waiter = os.fork()
    if waiter == 0:
        code = 1
        try:
            code = _wait_for_node(plan)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(waiter, 0)
    # A waiter that was killed takes no part in this: only what it says itself may boot the node again.
    return max(1, os.waitstatus_to_exitcode(status)) if status else 0


def _wait_for_node(plan: BootPlan) -> int:
    control_groups.create(plan.control_group)
    control_groups.enter(plan.control_group)
    with open(f"/run/netns/{plan.network_namespace}", "rb") as namespace:
        os.setns(namespace.fileno(), os.CLONE_NEWNET)
    os.unshare(_NAMESPACES)
    read_end, write_end = os.pipe()
    init = os.fork()
    if init == 0:
        os.close(write_end)
        _become_init(plan, read_end)
    try:
        os.close(read_end)
        # Only the node itself may live in its group: systemd wants the group for itself.
        control_groups.enter(plan.supervisor_group)
        Path(plan.folder, INIT_FILE).write_text(f"{init}\n", encoding="utf-8")
        os.write(write_end, b"1")
    finally:
        os.close(write_end)
    _, status = os.waitpid(init, 0)
    code = os.waitstatus_to_exitcode(status)
    return _BY_SIGNAL - code if code < 0 else min(code, 1)


def _become_init(plan: BootPlan, start: int) -> None:
    """Boot once the waiter is ready: both share one mount namespace, in which the boot replaces the host's files."""
    try:
        if os.read(start, 1):
            boot(plan)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
