# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running a vendor's tool with a deadline."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from typing import Sequence

# Tools are often in places that a non-interactive SSH session does not search.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/rocm/bin:/run/nvidia/driver/usr/bin"


@dataclass(frozen=True)
class ToolAnswer:
    """What came of a tool: C(state) is absent, ok, failed or slow; C(detail) is its last line of complaint."""

    state: str
    output: str = ""
    detail: str = ""


def run(command: Sequence[str], timeout: float, search_path: str = SEARCH_PATH) -> ToolAnswer:
    """Run a tool, at most C(timeout) seconds; its whole process group is ended when they are over."""
    program = shutil.which(command[0], path=search_path)
    if not program:
        return ToolAnswer("absent")
    environment = {"PATH": search_path, "LC_ALL": "C", "HOME": "/"}
    try:
        # run_command has no deadline, and a tool that hangs inside the driver would hold the module for ever.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return ToolAnswer("failed", detail=error.strerror or str(error))
    with process:
        try:
            output, complaint = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _end_group(process)
            return ToolAnswer("slow", detail=f"no answer within {timeout:g} s")
    text = output.decode("utf-8", "replace")
    if process.returncode != 0:
        lines = (complaint.decode("utf-8", "replace").strip() or text.strip()).splitlines()
        return ToolAnswer("failed", text, f"exit status {process.returncode}" + (f": {lines[-1].strip()}" if lines else ""))
    return ToolAnswer("ok", text)


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    # A tool that hangs inside the driver cannot be ended; its pipes are let go so that the module returns.
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()
    try:
        process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        process.returncode = -signal.SIGKILL
