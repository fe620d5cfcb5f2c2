# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running vendors' tools side by side, each with a deadline and a limit of what it may print."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, List, Sequence, Tuple

# Tools are often in places that a non-interactive SSH session does not search.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/rocm/bin:/run/nvidia/driver/usr/bin"
OUTPUT_LIMIT = 1024**2  # sixteen GPUs fill a few KiB
_DETAIL_LIMIT = 300


@dataclass(frozen=True)
class ToolAnswer:
    """What came of a tool: C(state) is absent, ok, failed or slow; C(detail) is what it complained of, one line."""

    state: str
    output: str = ""
    detail: str = ""


Command = Tuple[str, ...]
RunTool = Callable[[Sequence[str], float], ToolAnswer]


def run_all(commands: Iterable[Command], timeout: float, runner: RunTool) -> Dict[Command, ToolAnswer]:
    """Run commands side by side, so that all of them together take no longer than one may."""
    answers: Dict[Command, ToolAnswer] = {}

    def ask(command: Command) -> None:
        answers[command] = runner(command, timeout)

    threads = [threading.Thread(target=ask, args=(command,), daemon=True) for command in sorted(set(commands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def run(command: Sequence[str], timeout: float, search_path: str = SEARCH_PATH, limit: int = OUTPUT_LIMIT) -> ToolAnswer:
    """Run a tool, at most C(timeout) seconds; its whole process group is ended when they are over."""
    deadline = time.monotonic() + timeout
    program = shutil.which(command[0], path=search_path)
    if not program:
        return ToolAnswer("absent", detail="not installed")
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
        output, complaint, fault = _drain(process, deadline, limit)
        if fault:
            _end_group(process)
            return (
                ToolAnswer("slow", detail=f"no answer within {timeout:g} s")
                if fault == "slow"
                else ToolAnswer("failed", detail=fault)
            )
    if process.returncode != 0:
        said = one_line(complaint) or one_line(output)
        return ToolAnswer("failed", output, f"exit status {process.returncode}" + (f": {said}" if said else ""))
    return ToolAnswer("ok", output)


def _drain(process: "subprocess.Popen[bytes]", deadline: float, limit: int) -> Tuple[str, str, str]:
    """What a process prints until it ends, and what went wrong: C(slow), or that it printed too much."""
    chunks: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
    size = 0
    with selectors.DefaultSelector() as selector:
        for name in chunks:
            selector.register(getattr(process, name), selectors.EVENT_READ, name)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return "", "", "slow"
            for key, _events in ready:
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                chunks[key.data].append(data)
                size += len(data)
            if size > limit:
                return "", "", f"it printed more than {limit // 1024} KiB"
            if time.monotonic() >= deadline:
                return "", "", "slow"
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "", "", "slow"
    output, complaint = (b"".join(chunks[name]).decode("utf-8", "replace") for name in ("stdout", "stderr"))
    return output, complaint, ""


def one_line(text: str) -> str:
    """The last two lines of a text as one, without what no terminal can show."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()][-2:]
    joined = "".join(letter if letter.isprintable() else "?" for letter in "; ".join(lines))
    return joined if len(joined) <= _DETAIL_LIMIT else f"{joined[:_DETAIL_LIMIT]}…"


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
