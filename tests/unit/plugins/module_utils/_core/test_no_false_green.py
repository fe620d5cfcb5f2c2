# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ways in which a verification once could have ended green though something was wrong; each must be red."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.right_cluster import Right, demo

Json = dict[str, Any]


def _ended_pods(right: Right) -> None:
    for pod in right.pods("each", "nv-1"):
        pod.update(phase="Failed", reason="Evicted")


def _all_sees_a_foreign_card(right: Right) -> None:
    right.pods("all", "nv-1")[0]["report"]["devices"].append({"path": "/dev/dri/card9", "opened": True, "error": ""})


def _too_many_visible(right: Right) -> None:
    uuids = [gpu["uuid"] for gpu in right.nodes["nv-1"]["facts"]["gpus"]]
    right.pods("each", "nv-1")[0]["report"]["env"]["NVIDIA_VISIBLE_DEVICES"] = ",".join(uuids)


def _too_many_indexes_visible(right: Right) -> None:
    right.pods("each", "nv-1")[0]["report"]["env"]["NVIDIA_VISIBLE_DEVICES"] = "0,1,2,3"


def _broken_tool(right: Right) -> None:
    problem = {"code": "tool_counts_fewer", "subject": "nvidia-smi", "message": "nvidia-smi names 3 of the 4 GPUs", "hint": ""}
    right.nodes["nv-1"]["facts"]["problems"].append(problem)


def _same_device_under_two_names(right: Right) -> None:
    """The plugin maps the first GPU's device node to the second's name in the second's pod."""
    gpus = right.nodes["nv-1"]["facts"]["gpus"]
    for minor, gpu in enumerate(gpus):
        gpu["device_numbers"] = {gpu["device_nodes"][0]: f"c3:{minor:x}"}
    for pod in right.pods("each", "nv-1"):
        for entry in pod["report"]["devices"]:
            minor = next(i for i, gpu in enumerate(gpus) if entry["path"] in gpu["device_nodes"])
            entry["number"] = f"c3:{0 if minor == 1 else minor:x}"


@pytest.mark.parametrize(
    ("break_it", "check_id"),
    [
        (_ended_pods, "ASG-EACH"),
        (_all_sees_a_foreign_card, "ASG-ALL"),
        (_too_many_visible, "ASG-LEDGER"),
        (_too_many_indexes_visible, "ASG-LEDGER"),
        (_broken_tool, "ENUM-RUNTIME"),
        (_same_device_under_two_names, "ASG-OPEN"),
    ],
)
def test_it_is_red_with_the_right_check(break_it: Callable[[Right], None], check_id: str) -> None:
    right = demo()
    assert right.evidence()["verdict"] == "pass"
    right = demo()
    break_it(right)
    evidence = right.evidence()
    assert evidence["verdict"] == "fail"
    assert check_id in {check["id"] for check in evidence["checks"] if check["status"] == "fail" and check["node"] == "nv-1"}


def test_right_device_numbers_are_green() -> None:
    right = demo()
    gpus = right.nodes["nv-1"]["facts"]["gpus"]
    for minor, gpu in enumerate(gpus):
        gpu["device_numbers"] = {gpu["device_nodes"][0]: f"c3:{minor:x}"}
    for pod in right.pods("each", "nv-1"):
        for entry in pod["report"]["devices"]:
            entry["number"] = next(g["device_numbers"][entry["path"]] for g in gpus if entry["path"] in g["device_nodes"])
    assert right.evidence()["verdict"] == "pass"


def test_a_runtime_that_hands_over_the_devices_names_none_in_the_environment() -> None:
    """Specifications of nvidia-ctk set NVIDIA_VISIBLE_DEVICES=void: what the pod opened is still compared."""
    right = demo()
    pods = right.pods("each", "nv-1")
    for pod in [*pods, *right.pods("all", "nv-1")]:
        pod["report"]["env"]["NVIDIA_VISIBLE_DEVICES"] = "void"
    assert right.evidence()["verdict"] == "pass"
    pods[0]["report"]["devices"], pods[1]["report"]["devices"] = pods[1]["report"]["devices"], pods[0]["report"]["devices"]
    evidence = right.evidence()
    assert "ASG-LEDGER" in {check["id"] for check in evidence["checks"] if check["status"] == "fail"}


def test_a_gpu_that_is_not_to_be_offered_is_named_and_never_counted_as_proven() -> None:
    right = demo()
    kept = {**right.nodes["nv-1"]["facts"]["gpus"][0], "pci_address": "0000:aa:00.0", "excluded": "vfio"}
    right.nodes["nv-1"]["facts"]["excluded_gpus"] = [kept]
    evidence = right.evidence()
    (named,) = [check for check in evidence["checks"] if check["device"] == "0000:aa:00.0"]
    assert (named["id"], named["status"]) == ("ENUM-DRIVER", "skip")
    assert "vfio-pci" in named["reason"]
