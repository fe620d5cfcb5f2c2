# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ASG-OPEN for a pod that is not root: it must open all that it was given, or the verdict is red with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.right_cluster import Right

Json = dict[str, Any]


@pytest.fixture
def right() -> Right:
    cluster = Right({"nv-1": ("nvidia", 2), "acme-1": ("acme", 2), "cpu-1": ("", 0)})
    for name in ("nv-1", "acme-1"):
        cluster.pods("all", name)[0]["user"] = 1000
    return cluster


def as_user(evidence: Json) -> list[Json]:
    return [check for check in evidence["checks"] if check["id"] == "ASG-OPEN" and check["device"] == "all, as user 1000"]


def test_both_nodes_pass(right: Right) -> None:
    evidence = right.evidence()
    assert evidence["verdict"] == "pass", evidence["reasons"]
    assert [check["status"] for check in as_user(evidence)] == ["pass", "pass"]


def test_without_a_user_there_is_no_such_check() -> None:
    evidence = Right({"nv-1": ("nvidia", 2), "cpu-1": ("", 0)}).evidence()
    assert not [check for check in evidence["checks"] if "as user" in str(check["device"])]


@pytest.mark.parametrize("part", ["devices", "control"])
def test_one_node_that_the_user_may_not_open_is_red(right: Right, part: str) -> None:
    entry = right.pods("all", "nv-1")[0]["report"][part][0]
    entry.update(opened=False, error="Permission denied")
    evidence = right.evidence()
    assert evidence["verdict"] == "fail"
    (failed,) = [check for check in as_user(evidence) if check["status"] == "fail"]
    assert "user 1000 could not open" in failed["reason"]
    assert entry["path"] in failed["reason"]
    assert "device_ownership" in failed["hint"]


def test_a_pod_without_a_report_is_red(right: Right) -> None:
    right.pods("all", "nv-1")[0]["report"] = None
    assert "fail" in [check["status"] for check in as_user(right.evidence())]
