# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job on a real Kubernetes: prediction, first run, proof, second run."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from tests.lab.harness import Lab

RESOURCES = {
    ("nv-1", "nvidia.com/gpu"): 4,
    ("amd-1", "amd.com/gpu"): 8,
    ("intel-1", "gpu.intel.com/i915"): 2,
}
PHASES = {"enumeration", "registration", "advertisement", "admission", "scheduling", "assignment", "cleanup"}
IDS = {
    "ENUM-COUNT", "ENUM-MODEL", "ENUM-DRIVER", "ENUM-RUNTIME", "REG-SOCKET", "REG-ROLLOUT", "REG-SINGLE",
    "ADV-CAPACITY", "ADV-ALLOCATABLE", "ADV-HEALTH", "ADV-NAMES", "ADM-INTEGER", "ADM-EQUAL", "ADM-LIMIT-ONLY",
    "SCH-OVER", "SCH-SELECT", "ASG-EACH", "ASG-ALL", "ASG-EXCLUSIVE", "ASG-NONE", "ASG-OPEN", "ASG-LEDGER",
    "CLN-RELEASE", "CLN-REUSE", "CLN-RESIDUE",
}  # fmt: skip


@pytest.fixture(scope="module")
def evidence(demo: Lab) -> dict[str, Any]:
    run = demo.playbook("verify")
    assert run.code == 0, run.output[-4000:]
    return demo.evidence()


def test_the_first_run_ends_green_and_without_warnings(demo: Lab) -> None:
    assert demo.first_run is not None
    assert demo.first_run.code == 0, demo.first_run.output[-4000:]
    assert demo.first_run.changed >= 1
    assert "DEPRECATION" not in demo.first_run.output
    assert "[WARNING]" not in demo.first_run.output


def test_every_gpu_is_physical_capacity_allocatable_and_opened(evidence: dict[str, Any]) -> None:
    assert evidence["schema"] == 1
    assert evidence["verdict"] == "pass"
    assert evidence["cluster"] == {"version": "v1.36.3", "driver": "process"}
    assert evidence["totals"]["nodes"] == 4
    assert evidence["totals"]["gpus"] == 14
    found = {}
    for node in evidence["nodes"]:
        for resource in node["resources"]:
            numbers = {resource[key] for key in ("physical", "capacity", "allocatable", "opened")}
            assert len(numbers) == 1, resource
            found[node["name"], resource["name"]] = numbers.pop()
    assert found == RESOURCES
    assert {node["name"] for node in evidence["nodes"]} == {"nv-1", "amd-1", "intel-1", "cpu-1"}


def test_every_promised_check_was_made_and_held(evidence: dict[str, Any]) -> None:
    assert {check["phase"] for check in evidence["checks"] if check["status"] != "skip"} == PHASES
    passed = {check["id"] for check in evidence["checks"] if check["status"] == "pass"}
    assert passed == IDS
    assert evidence["totals"]["checks"]["fail"] == 0
    for check in evidence["checks"]:
        assert check["status"] != "skip" or check["reason"], check


def test_every_check_of_a_number_leads_to_what_it_was_read_from(evidence: dict[str, Any]) -> None:
    for check in evidence["checks"]:
        if check["status"] == "pass":
            assert check["evidence"], check
        for reference in check["evidence"]:
            assert reference in evidence["objects"], (check["id"], reference)


def test_junit_has_one_case_a_check(demo: Lab, evidence: dict[str, Any]) -> None:
    suites = ElementTree.parse(demo.output / "junit.xml").getroot().findall(".//testsuite")
    assert {suite.get("name") for suite in suites} == PHASES | {"labels"}
    assert sum(len(suite.findall("testcase")) for suite in suites) == len(evidence["checks"])


def test_the_report_is_one_file_with_all_nodes(demo: Lab, evidence: dict[str, Any]) -> None:
    report = (demo.output / "report.html").read_text(encoding="utf-8")
    for node in evidence["nodes"]:
        assert node["name"] in report


def test_a_second_run_changes_nothing(demo: Lab) -> None:
    run = demo.playbook("site")
    assert run.code == 0, run.output[-4000:]
    assert run.changed == 0, run.output


def test_check_mode_after_the_first_run_predicts_no_change(demo: Lab) -> None:
    run = demo.playbook("site", "--check", "--diff")
    assert run.code == 0, run.output[-4000:]
    assert run.changed == 0, run.output


def test_nothing_of_the_probes_is_left(demo: Lab, evidence: dict[str, Any]) -> None:
    listing = json.loads(demo.kubectl("get", "pods", "--all-namespaces", "--output", "json"))
    assert [pod["metadata"]["name"] for pod in listing["items"] if "probe" in pod["metadata"]["name"]] == []


def test_lspci_shows_the_cards_and_nothing_of_the_host(demo: Lab) -> None:
    expected = {"nv-1": ("[10de:2330]", 4), "amd-1": ("[1002:74a1]", 8), "intel-1": ("[8086:56c0]", 2)}
    for node, (ids, count) in expected.items():
        assert demo.inside(node, "lspci -nn").count(ids) == count
    assert demo.inside("cpu-1", "ls /sys/class/drm").strip() in ("", "version")
