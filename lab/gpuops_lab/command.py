# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running other programs: argument lists only, and one line when they fail."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuops_lab.errors import LabError


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    hint: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
) -> str:
    """Run a program to its end and return its standard output.

    Args:
        command: Program and arguments, never a shell line.
        what: What is being tried, for the error line: "create bridge gpuops0".
        hint: What to do if it fails.
        cwd: Folder to run in.
        env: Whole environment; the caller's own if not given.
        stdin: Text for standard input.
        timeout: Seconds after which it counts as failed.

    Raises:
        LabError: The program is missing, failed or took too long.
    """
    arguments = [str(part) for part in command]
    try:
        done = subprocess.run(
            arguments, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
    except FileNotFoundError as error:
        raise LabError(f"cannot {what}: program {arguments[0]} is missing", hint or "run `make setup` as root") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"cannot {what}: {arguments[0]} did not end within {timeout:.0f} s", hint) from error
    if done.returncode != 0:
        raise LabError(f"cannot {what}: {last_line(done.stderr) or last_line(done.stdout)} (exit {done.returncode})", hint)
    return done.stdout


def succeeds(command: Sequence[str | Path]) -> bool:
    """Whether a program runs and exits with 0; its output is not wanted."""
    try:
        return subprocess.run([str(part) for part in command], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def last_line(text: str) -> str:
    """The last line with something in it, the one where programs put their reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""
