# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a lab lives: names that clean-up can compute, indexes that two labs never share."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuops_lab import network, paths, place
from gpuops_lab.errors import LabError


@pytest.fixture(autouse=True)
def own_run_time_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(place, "RUN_TIME_ROOT", tmp_path)
    monkeypatch.setattr(paths, "RUN_TIME_ROOT", tmp_path)
    return tmp_path


def test_two_labs_get_different_indexes_and_the_first_free_one_is_reused(tmp_path: Path) -> None:
    first, second = place.take("one", tmp_path), place.take("two", tmp_path)
    assert (first.index, second.index) == (0, 1)
    assert first.node_range != second.node_range
    assert first.bridge != second.bridge
    (tmp_path / "one" / "place.json").unlink()
    assert place.take("three", tmp_path).index == 0


def test_a_machine_holds_sixteen_labs(tmp_path: Path) -> None:
    for number in range(place.MAXIMUM_LABS):
        place.take(f"lab-{number}", tmp_path)
    with pytest.raises(LabError, match="16 labs are running"):
        place.take("one-more", tmp_path)


def test_link_names_fit_the_kernel_and_name_the_project(tmp_path: Path) -> None:
    last = place.Place("a" * 20, 15, str(tmp_path))
    assert len(last.link(199)) <= 15
    assert len(last.bridge) <= 15
    for name in (last.link(0), last.bridge, last.table, last.control_group, last.network_namespace("n")):
        assert "gpuops" in name


def test_a_namespace_of_a_lab_with_a_longer_name_is_not_this_labs(tmp_path: Path) -> None:
    short, longer = place.take("demo", tmp_path), place.take("demo-two", tmp_path)
    assert network._belongs(short, short.network_namespace("one"))
    assert not network._belongs(short, longer.network_namespace("one"))


@pytest.mark.parametrize("name", ["", "UPPER", "-a", "a-", "a" * 21, "a_b", "../x"])
def test_names_that_cannot_stand_in_kernel_names_are_refused(name: str) -> None:
    with pytest.raises(LabError, match="cannot be used"):
        paths.check_name(name)


def test_a_damaged_record_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "place.json").write_text("{", encoding="utf-8")
    with pytest.raises(LabError, match=r"cannot read .*place\.json"):
        place.find("demo")


def test_a_lab_is_held_by_one_command_at_a_time() -> None:
    with place.held("demo"):
        with pytest.raises(LabError, match="another gpuops-lab command"), place.held("demo"):
            pass
        with place.held("other"):
            pass
    with place.held("demo"):
        pass
