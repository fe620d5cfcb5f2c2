# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Topologies: what is read, and one clear line for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuops_lab import topology
from gpuops_lab.errors import LabError
from gpuops_lab.hardware import catalogue


@pytest.mark.parametrize("name", topology.names())
def test_every_topology_names_known_hardware(name: str) -> None:
    for node in topology.load(name).nodes:
        assert node.hardware in catalogue.names()


def test_demo_holds_three_vendors_and_a_node_without_gpu() -> None:
    assert [node.hardware for node in topology.load("demo").nodes] == ["h100-4", "mi300x-8", "flex-170-2", "cpu-only"]


def test_an_unknown_topology_offers_near_names() -> None:
    with pytest.raises(LabError, match="unknown topology 'dmo'") as caught:
        topology.load("dmo")
    assert "demo" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no list of nodes"),
        ("nodes: []", "no list of nodes"),
        ("nodes: [a, b]", "needs name and hardware"),
        ("nodes: [{name: a}]", "needs name and hardware"),
        ("nodes: [{name: a, hardware: l4-2, colour: red}]", "unknown keys colour"),
        ("nodes: [{name: UPPER, hardware: l4-2}]", "node name"),
        ("nodes: [{name: a, hardware: l4-2, system: windows}]", "unknown system"),
        ("nodes: [{name: a, hardware: l4-2}, {name: a, hardware: l4-2}]", "names a node twice: a"),
        ("nodes: [", "cannot read topology"),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LabError, match=reason) as caught:
        topology.load(str(path))
    assert "\n" not in caught.value.line()
