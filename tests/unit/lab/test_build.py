# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The build of programs: cached by content, one clear line on failure, nothing half-written."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuops_lab.errors import LabError
from gpuops_lab.programs import build, components
from gpuops_lab.programs.components import Component, Program

MODULE = "module example.test/hello\n\ngo 1.21\n"
HELLO = 'package main\n\nfunc main() { println("hello") }\n'


@pytest.fixture
def component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Component:
    monkeypatch.setenv("GPUOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(components, "LAB_FOLDER", tmp_path)
    folder = tmp_path / "components" / "hello-1.0.0"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text(MODULE, encoding="utf-8")
    (folder / "go.sum").write_text("", encoding="utf-8")
    (folder / "main.go").write_text(HELLO, encoding="utf-8")
    return Component("hello", "1.0.0", (Program("hello", "example.test/hello"),))


def test_a_program_is_built_once(component: Component) -> None:
    lines: list[str] = []
    [folder] = build.build_all([component], lines.append)
    assert (folder / "hello").stat().st_mode & 0o111
    assert "hello (1 of 1)" in lines[0]
    assert "s left" in lines[0]
    lines.clear()
    assert build.build_all([component], lines.append) == [folder]
    assert lines == []


def test_other_checksums_are_another_cache_entry(component: Component) -> None:
    before = build.cache_folder(component)
    (component.folder / "go.sum").write_text("example.test/other v1.0.0 h1:x=\n", encoding="utf-8")
    assert build.cache_folder(component) != before


def test_a_failed_build_names_the_component_and_leaves_nothing(component: Component) -> None:
    (component.folder / "main.go").write_text("package main\n\nfunc main() { nothing() }\n", encoding="utf-8")
    with pytest.raises(LabError, match=r"cannot build hello of component hello 1\.0\.0: .*undefined: nothing"):
        build.build_all([component], lambda line: None)
    assert list(build.cache_folder(component).iterdir()) == []


def test_an_unpinned_kubernetes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUOPS_K8S", "1.2.3")
    with pytest.raises(LabError, match=r"1\.2\.3 is not pinned"):
        components.kubernetes_version()
