# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict: green only when all is right, red with the right check for each single thing that is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpuops.k8s.plugins.module_utils._core import checks, verdict
from ansible_collections.gpuops.k8s.plugins.module_utils._core.situation import Situation
from tests.fixtures.right_cluster import ABOUT, KNOWN, Right, demo

Json = dict[str, Any]
NV = "nvidia.com/gpu"


def failed(evidence: Json) -> set[str]:
    return {check["id"] for check in evidence["checks"] if check["status"] == "fail"}


def test_everything_right_is_pass() -> None:
    evidence = demo().evidence()
    assert evidence["reasons"] == []
    assert evidence["verdict"] == "pass"
    assert evidence["totals"]["gpus"] == 11
    assert evidence["totals"]["nodes"] == 5
    assert evidence["totals"]["checks"]["fail"] == 0
    row = evidence["nodes"][0]["resources"][0]
    assert row == {"name": NV, "vendor": "nvidia", "physical": 4, "expected": 4, "capacity": 4, "allocatable": 4,
                   "opened": 4, "busy": 0}  # fmt: skip
    json.dumps(evidence)


def test_every_reference_leads_to_an_object_and_every_skip_has_a_reason() -> None:
    evidence = demo().evidence()
    for check in evidence["checks"]:
        assert check["status"] != "skip" or check["reason"]
        assert all(reference in evidence["objects"] for reference in check["evidence"])
        assert check["phase"] == checks.CHECKS[check["id"]].phase


def _one_fewer(right: Right) -> None:
    right.capacity["nv-1"]["resources"][0].update(capacity=3, allocatable=3)


def _unopened(right: Right) -> None:
    right.pods("each", "nv-1")[0]["report"]["devices"][0].update(opened=False, error="Permission denied")


def _two_plugins(right: Right) -> None:
    right.plugins.append({**right.plugins[0], "name": "foreign", "namespace": "kube-system", "owned": False})


def _two_ids_one_device(right: Right) -> None:
    second = right.pods("each", "nv-1")[1]
    first = right.pods("each", "nv-1")[0]
    second["report"] = first["report"]
    right.nodes["nv-1"]["ledger"]["allocations"][1]["device_ids"] = [first["report"]["env"]["NVIDIA_VISIBLE_DEVICES"] + "::1"]


def _extra_id(right: Right) -> None:
    right.capacity["nv-1"]["resources"][0].update(capacity=5, allocatable=5)
    right.nodes["nv-1"]["ledger"]["registered"][NV].append("GPU-00000000-0000-0000-0000-000000000000::1")


def _sees_without_request(right: Right) -> None:
    right.pods("none", "cpu-1")[0]["report"]["devices"] = [{"path": "/dev/dri/card0", "opened": False, "error": "x"}]


def _plugin_gone(right: Right) -> None:
    right.plugins = [entry for entry in right.plugins if entry["vendor"] != "nvidia"]


def _nothing_probed(right: Right) -> None:
    right.probe = {"targets": [], "pods": [], "admission": [], "residue": None}


def _not_ready(right: Right) -> None:
    right.capacity["amd-1"].update(ready=False, ready_reason="KubeletNotReady")


def _cordoned(right: Right) -> None:
    right.capacity["amd-1"]["unschedulable"] = True


def _unknown_node(right: Right) -> None:
    right.capacity["strange"] = {**right.capacity.pop("amd-1"), "name": "strange"}


def _not_in_inventory(right: Right) -> None:
    del right.nodes["intel-1"]


def _unreachable_host(right: Right) -> None:
    right.nodes["cpu-1"].update(facts=None, ledger=None)


def _wrong_device(right: Right) -> None:
    first, second = right.pods("each", "intel-1")
    first["report"], second["report"] = second["report"], first["report"]


def _other_gpu_visible(right: Right) -> None:
    right.pods("each", "nv-1")[0]["report"]["devices"].append({"path": "/dev/nvidia3", "opened": False, "error": "x"})


def _no_control_node(right: Right) -> None:
    right.pods("each", "amd-1")[0]["report"]["control"] = []


def _one_too_many_placed(right: Right) -> None:
    right.pods("over", "nv-1")[0].update(placed="nv-1", phase="Running")


def _pending_for_another_reason(right: Right) -> None:
    right.pods("over", "nv-1")[0]["message"] = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.shared"


def _half_accepted(right: Right) -> None:
    right.probe["admission"][0].update(status=201, message="")


def _stale(right: Right) -> None:
    right.capacity["cpu-1"]["resources"] = [
        {"name": "amd.com/old", "vendor": "amd", "capacity": 0, "allocatable": 0, "allocated": 0, "free": 0, "holders": []}
    ]


def _residue(right: Right) -> None:
    right.probe["residue"] = ["v/probe-1"]


def _promised_more(right: Right) -> None:
    right.nodes["nv-1"]["expected_gpus"] = 8


def _no_driver(right: Right) -> None:
    right.nodes["nv-1"]["facts"]["gpus"][0].update(state="no_driver", driver="", resource="")


def _second_socket(right: Right) -> None:
    right.nodes["nv-1"]["ledger"]["sockets"].append("second-nvidia-gpu.sock")


def _no_ledger(right: Right) -> None:
    right.nodes["nv-1"]["ledger"] = None


def _unhealthy(right: Right) -> None:
    right.capacity["nv-1"]["resources"][0]["allocatable"] = 3


def _all_takes_fewer(right: Right) -> None:
    right.pods("all", "nv-1")[0]["report"]["devices"].pop()


def _elsewhere(right: Right) -> None:
    right.pods("all", "nv-1")[0]["placed"] = "amd-1"


def _stuck(right: Right) -> None:
    right.pods("each", "nv-1")[0].update(gone=False)


def _cut_report(right: Right) -> None:
    right.pods("each", "nv-1")[0]["report"]["complete"] = False


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (_one_fewer, "ADV-CAPACITY"), (_unopened, "ASG-OPEN"), (_two_plugins, "REG-SINGLE"),
        (_two_ids_one_device, "ASG-EXCLUSIVE"), (_extra_id, "ADV-CAPACITY"), (_sees_without_request, "ASG-NONE"),
        (_plugin_gone, "REG-ROLLOUT"), (_nothing_probed, "ASG-EACH"), (_nothing_probed, "CLN-RESIDUE"),
        (_not_ready, "ADV-HEALTH"), (_cordoned, "ADV-HEALTH"), (_unknown_node, "ENUM-COUNT"),
        (_not_in_inventory, "ENUM-COUNT"), (_unreachable_host, "ENUM-COUNT"), (_wrong_device, "ASG-OPEN"),
        (_other_gpu_visible, "ASG-OPEN"), (_no_control_node, "ASG-OPEN"), (_one_too_many_placed, "SCH-OVER"),
        (_pending_for_another_reason, "SCH-OVER"), (_half_accepted, "ADM-INTEGER"), (_stale, "ADV-NAMES"),
        (_residue, "CLN-RESIDUE"), (_promised_more, "ENUM-COUNT"), (_no_driver, "ENUM-DRIVER"),
        (_second_socket, "REG-SINGLE"), (_no_ledger, "ASG-LEDGER"), (_unhealthy, "ADV-HEALTH"),
        (_all_takes_fewer, "ASG-ALL"), (_elsewhere, "SCH-SELECT"), (_stuck, "CLN-RELEASE"), (_cut_report, "ASG-EACH"),
    ],
)  # fmt: skip
def test_one_thing_wrong_is_fail(spoil: Callable[[Right], None], expected: str) -> None:
    right = demo()
    spoil(right)
    evidence = right.evidence()
    assert evidence["verdict"] == "fail"
    assert expected in failed(evidence)
    for check in evidence["checks"]:
        if check["status"] == "fail":
            assert check["reason"]
            assert check["hint"]
    assert "\n" not in verdict.summary(evidence)


def test_nothing_at_all_is_fail() -> None:
    evidence = verdict.build(Situation([], {}, [], {}, KNOWN), ABOUT)
    assert evidence["verdict"] == "fail"
    assert any("no node" in reason for reason in evidence["reasons"])


def test_no_gpu_is_fail_unless_the_inventory_says_so() -> None:
    right = Right({"cpu-1": ("", 0)})
    assert right.evidence()["verdict"] == "fail"
    right.nodes["cpu-1"]["expected_gpus"] = 0
    assert right.evidence()["reasons"] == []


def _make_busy(right: Right, held: int) -> None:
    """Let a pod of others hold the first GPUs of nv-1."""
    holders = [{"namespace": "team", "pod": "train", "uid": "t1", "quantity": held}]
    right.probe["targets"][0].update(allocated=held, idle=4 - held, holders=holders)
    for pod, entry in list(zip(right.pods("each", "nv-1"), right.nodes["nv-1"]["ledger"]["allocations"]))[:held]:
        right.probe["pods"].remove(pod)
        entry.update(pod="train", namespace="team")
    for pod in right.pods("all", "nv-1"):
        pod["report"]["devices"] = pod["report"]["devices"][held:]
        if held == 4:
            right.probe["pods"].remove(pod)


def test_a_busy_gpu_is_left_out_with_its_holder() -> None:
    right = demo()
    _make_busy(right, 1)
    evidence = right.evidence()
    assert evidence["reasons"] == []
    left_out = [check for check in evidence["checks"] if check["id"] == "ASG-EACH" and check["status"] == "skip"]
    assert [check["reason"] for check in left_out] == ["busy: held by team/train"]
    assert evidence["nodes"][0]["resources"][0]["busy"] == 1
    right.busy = "fail"
    assert right.evidence()["verdict"] == "fail"


def test_a_node_that_is_all_busy_proves_nothing() -> None:
    right = demo()
    _make_busy(right, 4)
    evidence = right.evidence()
    assert failed(evidence) == set()
    assert evidence["verdict"] == "fail"
    assert any("nothing proven by ASG-EACH" in reason and "team/train" in reason for reason in evidence["reasons"])


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, (*path, index))] + [(*path, "-1")]
    return [path]


# Numbers and truths that the verdict rests on, wherever they stand in its inputs.
_LOAD_BEARING = {"capacity", "allocatable", "opened", "complete", "ready", "placed", "gone", "path", "kubelet_socket"}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_single_perturbation_of_what_was_observed_is_pass(data: st.DataObject) -> None:
    right = demo()
    observed = {"capacity": right.capacity, "probe": right.probe, "plugins": right.plugins,
                "ledgers": {name: node["ledger"] for name, node in right.nodes.items()}}  # fmt: skip
    paths = [path for path in _leaves(observed) if path[-1] in _LOAD_BEARING
             and not (path[0] == "capacity" and path[1] == "cpu-1")
             and not (path[-1] == "gone" and _kind(right, path) in ("none", "over"))
             and not (path[0] == "ledgers" and path[1] == "cpu-1")]  # fmt: skip
    path = data.draw(st.sampled_from(paths))
    place: Any = observed
    for part in path[:-1]:
        place = place[part]
    value = place[path[-1]]
    place[path[-1]] = (not value) if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}9"
    assert right.evidence()["verdict"] == "fail", path


def _kind(right: Right, path: tuple[Any, ...]) -> str:
    return right.probe["pods"][path[2]]["kind"] if path[:2] == ("probe", "pods") else ""


def test_a_skip_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        checks.skip("ASG-EACH", "")


def test_shared_devices_are_compared_with_their_replicas() -> None:
    right = Right({"nv-1": ("nvidia", 2)})
    right.replicas = {NV: 2}
    assert "ADV-CAPACITY" in failed(right.evidence())
