# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a cluster's versions does not go together."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuops.k8s.plugins.filter.compatibility_problems import compatibility_problems


def host(vendor: str, **gpu: Any) -> dict[str, Any]:
    return {"ansible_facts": {"gpu": {"gpus": [{"vendor": vendor, "driver": "nvidia", "partitions": [], **gpu}]}}}


NODE = {
    "name": "n-1", "kubelet_version": "v1.36.3", "container_runtime": "containerd://2.4.2", "kernel_version": "6.12.48-amd64",
}  # fmt: skip


def codes(variables: dict[str, Any], **arguments: Any) -> list[str]:
    nodes = [{**NODE, **arguments.pop("node", {})}]
    return [each["code"] for each in compatibility_problems({"n-1": variables}, ["n-1"], nodes, **arguments)]


def test_what_goes_together_is_no_problem() -> None:
    volta = host("nvidia", architecture="volta", driver_version="580.95.05")
    assert codes(volta, wanted={"nvidia": {"toolkit": "1.20.2-1"}}) == []


def test_toolkit_driver_runtime_and_kernel_are_compared() -> None:
    hopper = host("nvidia", architecture="hopper", driver_version="580.95.05")
    assert codes(hopper, wanted={"nvidia": {"toolkit": "1.17.4-1"}}) == ["toolkit_escape"]
    assert codes(hopper, wanted={"nvidia": {"toolkit": "1.18.0-1"}}) == ["toolkit_loses_imports"]
    assert codes(hopper, node={"container_runtime": "containerd://1.6.36"}) == ["containerd_without_cdi"]
    assert codes(host("nvidia", architecture="volta", driver_version="590.48.01")) == ["driver_without_volta"]
    blackwell = host("nvidia", architecture="blackwell", driver_version="580.95.05", kernel_module_flavor="proprietary")
    assert codes(blackwell) == ["proprietary_module_on_blackwell"]
    flex = host("intel", driver="i915", architecture="xe-hpg")
    assert codes(flex, node={"kernel_version": "5.14.0-570.el9.x86_64"}) == ["kernel_without_discrete_i915"]
    assert codes(flex, wanted={"intel": {"plugin": "0.32.0"}}) == ["plugin_older_than_cluster"]


def test_each_problem_is_told_once_a_node_names_it_and_can_be_accepted() -> None:
    variables = host("nvidia", architecture="hopper", driver_version="580.95.05")
    variables["ansible_facts"]["gpu"]["gpus"] *= 8
    variables["gpu_node_name"] = "n-1"
    wanted = {"nvidia": {"toolkit": "1.17.4-1"}}
    (found,) = compatibility_problems({"host": variables}, ["host"], [NODE], wanted)
    assert found["message"].startswith("n-1: nvidia-container-toolkit 1.17.4-1 ")
    assert found["hint"] == "Use 1.17.8 or newer."
    assert compatibility_problems({"host": variables}, ["host"], [NODE], wanted, ["toolkit_escape"]) == []


def test_a_node_of_which_nothing_is_known_is_not_judged() -> None:
    assert compatibility_problems({"n-1": {}}, ["n-1"], []) == []
    assert codes(host("intel", driver="i915", architecture="xe-hpg"), node={"name": "other"}) == []
