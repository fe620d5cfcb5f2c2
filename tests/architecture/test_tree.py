# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of the tree that no linter knows."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
LONGEST_FILE = 400
HEADER = Path(__file__).read_text(encoding="utf-8").splitlines()[:3]


@cache
def tracked() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [CHECKOUT / name for name in listing.splitlines() if (CHECKOUT / name).is_file()]


def python_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and "_pb2" not in path.name]


def roles() -> list[str]:
    return sorted(path.name for path in (CHECKOUT / "roles").iterdir() if path.is_dir())


def modules() -> list[Path]:
    return sorted(path for path in (CHECKOUT / "plugins" / "modules").glob("*.py") if path.name != "__init__.py")


def test_there_is_something_to_check() -> None:
    assert len(python_files()) > 50
    assert set(roles()) >= {"gpu_detect", "device_plugin", "gpu_verification"}
    assert len(modules()) >= 7


def test_every_python_file_has_the_licence_header() -> None:
    lacking = []
    for path in python_files():
        lines = path.read_text(encoding="utf-8").splitlines()
        first = 1 if lines[:1] and lines[0].startswith("#!") else 0
        if lines[first : first + 3] != HEADER:
            lacking.append(str(path.relative_to(CHECKOUT)))
    assert lacking == []


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    counts = {str(path.relative_to(CHECKOUT)): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert {path: count for path, count in counts.items() if count > LONGEST_FILE} == {}


@pytest.mark.parametrize("role", roles())
def test_defaults_are_those_that_the_argument_specification_documents(role: str) -> None:
    folder = CHECKOUT / "roles" / role
    specification = yaml.safe_load((folder / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    options: dict[str, Any] = specification["argument_specs"]["main"]["options"]
    path = folder / "defaults" / "main.yml"
    defaults = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}
    documented = {name: option["default"] for name, option in options.items() if "default" in option}
    plain = {name: value for name, value in defaults.items() if "{{" not in str(value)}
    assert {name: documented.get(name) for name in plain} == plain
    assert set(documented) <= set(defaults)
    assert set(defaults) <= set(options)


@pytest.mark.parametrize("role", roles())
def test_every_role_says_what_it_is(role: str) -> None:
    folder = CHECKOUT / "roles" / role
    assert (folder / "README.md").stat().st_size > 300
    assert (folder / "meta" / "main.yml").exists()


@pytest.mark.parametrize("module", modules(), ids=lambda path: path.stem)
def test_every_module_is_run_by_a_test(module: Path) -> None:
    own = Path(__file__)
    texts = [path.read_text(encoding="utf-8") for path in (CHECKOUT / "tests").rglob("test_*.py") if path != own]
    ways = (
        f"gpuops.k8s.{module.stem}",
        f"modules import {module.stem}",
        f', "{module.stem}"',
        f", {module.stem}",
        f'("{module.stem}"',
    )
    assert any(way in text for text in texts for way in ways), f"no test runs {module.stem}"


def test_modules_of_the_api_are_in_the_action_group() -> None:
    groups = yaml.safe_load((CHECKOUT / "meta" / "runtime.yml").read_text(encoding="utf-8"))["action_groups"]
    listed = {entry for entry in groups["cluster"] if isinstance(entry, str)}
    with_connection = {path.stem for path in modules() if "gpuops.k8s.cluster_options" in path.read_text(encoding="utf-8")}
    assert with_connection
    assert listed == with_connection


def test_the_archive_leaves_out_what_users_do_not_run() -> None:
    ignored = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text(encoding="utf-8"))["build_ignore"]
    assert {"lab", "tests", "molecule", "tools", "build"} <= set(ignored)


def test_links_in_documents_lead_somewhere() -> None:
    import re

    broken = []
    for path in tracked():
        if path.suffix == ".md" and "fixtures" not in path.parts:
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
                if "://" not in target and not (path.parent / target).exists():
                    broken.append(f"{path.relative_to(CHECKOUT)}: {target}")
    assert broken == []
