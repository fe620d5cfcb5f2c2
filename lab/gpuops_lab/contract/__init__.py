# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""C(gpuops-lab contract): run any v1beta1 device plugin on simulated hardware and record how it answers a kubelet."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpuops_lab.contract.kubelet import StandInKubelet, record
from gpuops_lab.errors import LabError
from gpuops_lab.hardware import catalogue, tree
from gpuops_lab.paths import LAB_FOLDER

SETTLE_SECONDS = 2.0
END_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument("--hardware", default="h100-8", metavar="MODEL", help=f"one of {', '.join(catalogue.names())}")
    parser.add_argument("--record", metavar="OUT.json", help="write the record there instead of to standard output")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="wait so long for a registration")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the plugin and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Record the plugin and return 0.

    Raises:
        LabError: It cannot be run here, or nothing registered.
    """
    command = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if not command:
        raise LabError(
            "no command given", "end the line with -- and the device plugin, such as -- gpuops-device-plugin --vendor amd"
        )
    if platform.system() != "Linux" or os.geteuid() != 0:
        raise LabError("contract needs root on Linux for a mount namespace", "run with sudo")
    machine = catalogue.load(arguments.hardware)
    with tempfile.TemporaryDirectory(prefix="gpuops-contract-") as name:
        folder = Path(name)
        tree.write(machine, folder)
        recorded = observe(folder, command, arguments.timeout)
    recorded["run"]["hardware"] = machine.name
    text = json.dumps([recorded], indent=1)
    if arguments.record:
        try:
            Path(arguments.record).write_text(f"{text}\n", encoding="utf-8")
        except OSError as error:
            raise LabError(f"cannot write {arguments.record}: {error.strerror}") from error
    else:
        print(text)
    return 0


def observe(folder: Path, command: list[str], timeout: float) -> dict[str, Any]:
    """Run a command on the hardware below a folder and record every resource that it registers.

    Raises:
        LabError: Nothing registered; the reason is the command's last line.
    """
    sockets = folder / "device-plugins"
    sockets.mkdir()
    log = folder / "command.log"
    with StandInKubelet(sockets) as kubelet, log.open("wb") as output:
        process = _start(folder, command, output)
        try:
            requests = kubelet.settle(SETTLE_SECONDS, timeout, lambda: process.poll() is not None)
            resources = [record(kubelet, request) for request in requests]
            code, printed = process.poll(), log.read_text(encoding="utf-8", errors="replace")
        finally:
            _end(process)
        found = kubelet.sockets()
    if not resources:
        raise LabError(_why_none(code, printed, command, timeout))
    return {"run": {"plugin": command[0], "args": command[1:]}, "sockets": found, "resources": resources}


def _start(folder: Path, command: list[str], output: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(LAB_FOLDER), os.environ.get("PYTHONPATH"))))}
    # Beside the interpreter lie the commands of the same environment, the simulated plugin among them.
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return subprocess.Popen(
        [sys.executable, "-m", "gpuops_lab.contract.namespace", str(folder), *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command as a kubelet's runtime does: TERM, and KILL for whatever of its session is left."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def _why_none(code: int | None, printed: str, command: list[str], timeout: float) -> str:
    lines = [line for line in printed.splitlines() if line.strip()]
    last = f": {lines[-1].strip()}" if lines else ", it printed nothing"
    if code is not None:
        return f"{command[0]} registered no resource and ended with status {code}{last}"
    return f"{command[0]} registered no resource within {timeout:.0f} s{last}"
