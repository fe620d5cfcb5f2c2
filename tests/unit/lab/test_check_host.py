# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the process driver needs of a machine: said in one line with the ways out, before anything is made."""

from __future__ import annotations

import os
import platform
import shutil

import pytest

from gpuops_lab import cli, lab
from gpuops_lab.errors import LabError


def test_without_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cli.main(["up", "demo", "--name", "never-made"]) == 1
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "needs root" in line
    assert "sudo" in line


def test_not_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(LabError, match="needs Linux, this is Darwin"):
        lab.check_host()


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "nft" else f"/usr/sbin/{tool}")
    with pytest.raises(LabError, match="missing programs: nft") as caught:
        lab.check_host()
    assert "make setup" in caught.value.hint


@pytest.mark.parametrize("words", [[], ["no-such-command"], ["up"], ["up", "demo", "--driver", "vagrant"]])
def test_wrong_use_is_exit_code_two(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
