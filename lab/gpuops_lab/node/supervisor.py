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
_NAMESPACES = os.CLONE_NEWNS | os.CLONE_NEWUTS | os.CLONE_NEWIPC | os.CLONE_NEWPID | os.CLONE_NEWCGROUP


def main() -> int:
    """Boot the node of the folder given as the only argument until it powers off."""
    folder = sys.argv[1]
    Path(folder, ENDED_FILE).unlink(missing_ok=True)
    while True:
        number = _boot_once(read_plan(folder))
        print(f"node ended with signal {number}", flush=True)
        if number != signal.SIGHUP:
            Path(folder, ENDED_FILE).touch()
            return 0


def _boot_once(plan: BootPlan) -> int:
    """Boot and wait; the signal that ended the node, 0 if it exited."""
    waiter = os.fork()
    if waiter == 0:
        os._exit(_wait_for_node(plan))
    _, status = os.waitpid(waiter, 0)
    return os.waitstatus_to_exitcode(status)


def _wait_for_node(plan: BootPlan) -> int:
    control_groups.create(plan.control_group)
    control_groups.enter(plan.control_group)
    with open(f"/run/netns/{plan.network_namespace}", "rb") as namespace:
        os.setns(namespace.fileno(), os.CLONE_NEWNET)
    os.unshare(_NAMESPACES)
    init = os.fork()
    if init == 0:
        _become_init(plan)
    # Only the node itself may live in its group: systemd wants the group for itself.
    control_groups.enter(plan.supervisor_group)
    Path(plan.folder, INIT_FILE).write_text(f"{init}\n", encoding="utf-8")
    _, status = os.waitpid(init, 0)
    return max(0, -os.waitstatus_to_exitcode(status))


def _become_init(plan: BootPlan) -> None:
    try:
        boot(plan)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
