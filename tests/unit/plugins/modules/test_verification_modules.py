# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verification modules as Ansible calls them, and their filter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuops.k8s.plugins.filter.verification_nodes import verification_nodes
from ansible_collections.gpuops.k8s.plugins.modules import gpu_allocation_probe, gpu_capacity_info, gpu_verdict
from tests.fixtures.fake_api import FakeApi
from tests.fixtures.module_call import call
from tests.fixtures.right_cluster import Right

Json = dict[str, Any]


def options(right: Right, **more: Any) -> Json:
    return {"nodes": list(right.nodes.values()), "capacity": list(right.capacity.values()), "plugins": right.plugins,
            "probe": right.probe, **more}  # fmt: skip


@pytest.fixture
def right() -> Right:
    return Right({"nv-1": ("nvidia", 2), "cpu-1": ("", 0)})


def test_verdict_pass_writes_three_files(right: Right, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(gpu_verdict.main, capsys, options(right, output_dir=str(tmp_path / "out")))
    assert result["verdict"] == "pass"
    assert result["changed"] is False
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["evidence.json", "junit.xml", "report.html"]
    assert json.loads((tmp_path / "out" / "evidence.json").read_text())["schema"] == 1


def test_verdict_fail_fails_and_still_writes(right: Right, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right.capacity["nv-1"]["resources"][0].update(capacity=1, allocatable=1)
    result = call(gpu_verdict.main, capsys, options(right, output_dir=str(tmp_path)))
    assert result["failed"] is True
    assert "ADV-CAPACITY nv-1 nvidia.com/gpu: expected 2, found 1" in result["msg"]
    assert "\n" not in result["msg"]
    assert (tmp_path / "evidence.json").is_file()
    assert call(gpu_verdict.main, capsys, options(right, fail_on="never"))["verdict"] == "fail"


def test_verdict_in_check_mode_writes_nothing(right: Right, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(gpu_verdict.main, capsys, options(right, output_dir=str(tmp_path / "out"), _ansible_check_mode=True))
    assert result["files"] == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"vendors": ["acm"]}, "acm is not known"),
        ({"replicas": {"nvidia.com/gpu": 0}}, "replicas"),
        ({"capacity": [{}]}, "do not fit together"),
        ({"nodes": [{"host": "a", "facts": {"x": 1}}]}, "facts of host a"),
        ({"output_dir": "/dev/null/out"}, "Writing the evidence"),
    ],
)
def test_verdict_says_what_is_wrong_in_one_line(
    right: Right, capsys: pytest.CaptureFixture[str], wrong: Json, words: str
) -> None:
    result = call(gpu_verdict.main, capsys, {**options(right), **wrong})
    assert words in result["msg"]
    assert "\n" not in result["msg"]


def test_capacity_info_reads_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi() as api:
        api.add("/api/v1/nodes", {"metadata": {"name": "a"}, "status": {"capacity": {"amd.com/gpu": "2"}}})
        api.add("/api/v1/nodes", {"metadata": {"name": "b"}})
        result = call(gpu_capacity_info.main, capsys, {"kubeconfig": api.kubeconfig(tmp_path / "k"), "node_names": ["a"]})
        assert [node["name"] for node in result["nodes"]] == ["a"]
        assert result["cluster_version"] == "v1.36.3"
        assert len(api.calls("GET", "/api/v1/(nodes|pods)")) == 2


def test_probe_in_check_mode_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], right: Right) -> None:
    with FakeApi() as api:
        args = {"kubeconfig": api.kubeconfig(tmp_path / "k"), "phase": "hold", "nodes": list(right.nodes.values())}
        result = call(gpu_allocation_probe.main, capsys, {**args, "_ansible_check_mode": True})
        assert result["probe"]["pods"] == []
        assert not [entry for entry in api.requests if entry[0] != "GET"]


def test_probe_that_may_not_list_nodes_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], right: Right) -> None:
    with FakeApi() as api:
        api.refuse("GET", "/api/v1/nodes", 403, "nodes is forbidden")
        args = {"kubeconfig": api.kubeconfig(tmp_path / "k"), "phase": "hold", "nodes": list(right.nodes.values())}
        result = call(gpu_allocation_probe.main, capsys, args)
        assert result["failed"] is True
        assert "nodes" in result["msg"]
        assert "\n" not in result["msg"]


def test_filter_keeps_hosts_that_say_nothing() -> None:
    hostvars = {"a": {"ansible_facts": {"gpu": {"gpus": []}}, "gpu_node_name": "node-a", "gpu_expected_gpus": "2"}, "b": {}}
    first, second = verification_nodes(hostvars, ["a", "b"])
    assert (first["name"], first["expected_gpus"], first["facts"]) == ("node-a", 2, {"gpus": []})
    assert second == {"host": "b", "name": "b", "facts": None, "ledger": None, "expected_gpus": None}


def test_documented_options_are_the_real_ones() -> None:
    for module in (gpu_verdict, gpu_allocation_probe):
        assert set(yaml.safe_load(module.DOCUMENTATION)["options"]) == set(module.argument_spec())
