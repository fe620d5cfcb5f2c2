# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take the truth away in one way after the other: the verification must turn red at the right check, and green again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab.harness import Lab, failed_ids, left_out

SECOND = "second-nvidia-plugin"


@pytest.fixture(autouse=True)
def mended(small: Lab) -> Iterator[None]:
    """Leave each test with a whole cluster, whatever it broke."""
    yield
    small.command("fault", "clear")


def verify_red(lab: Lab, *expected: str) -> dict[str, str]:
    """Run the verification, want it red with these ids, and return the failed checks' reasons."""
    run = lab.playbook("verify")
    evidence = lab.evidence()
    assert run.code != 0, f"the play ended green; left out: {left_out(evidence)}\n{run.output[-3000:]}"
    assert evidence["verdict"] == "fail"
    assert set(expected) <= failed_ids(evidence), failed_ids(evidence)
    failed = [check for check in evidence["checks"] if check["status"] == "fail"]
    for check in failed:
        assert check["reason"], check
        assert check["hint"], check
        assert "\n" not in check["reason"]
    assert "Traceback" not in run.output
    return {check["id"]: check["reason"] for check in failed}


@pytest.mark.parametrize(
    ("node", "kind", "expected"),
    [
        ("nv-1", "device-missing", "ADV-CAPACITY"),
        ("amd-1", "device-missing", "ADV-CAPACITY"),
        ("amd-1", "device-dead", "ASG-OPEN"),
        ("nv-1", "device-dead", "ASG-OPEN"),
        ("intel-1", "duplicate-id", "ASG-EXCLUSIVE"),
        ("nv-1", "leak-to-all", "ASG-NONE"),
        ("intel-1", "device-unhealthy", "ADV-HEALTH"),
        ("amd-1", "wrong-device", "ASG-OPEN"),
    ],
)
def test_a_fault_turns_its_check_red(small: Lab, node: str, kind: str, expected: str) -> None:
    small.command("fault", "apply", node, kind)
    verify_red(small, expected)
    named = {check["node"] for check in small.evidence()["checks"] if check["status"] == "fail" and check["id"] == expected}
    assert named == {node}


def test_two_plugins_for_one_resource(small: Lab) -> None:
    daemon_set = json.loads(
        small.kubectl("get", "daemonset", "nvidia-device-plugin", "-n", "gpuops-system", "--output", "json")
    )
    daemon_set["metadata"] = {"name": SECOND, "namespace": "default"}
    daemon_set["spec"]["selector"] = {"matchLabels": {"app": SECOND}}
    daemon_set["spec"]["template"]["metadata"] = {"labels": {"app": SECOND}}
    daemon_set["spec"]["template"]["spec"].pop("serviceAccountName", None)
    daemon_set["spec"]["template"]["spec"].pop("serviceAccount", None)
    daemon_set.pop("status")
    small.kubectl("apply", "--filename", "-", stdin=json.dumps(daemon_set))
    try:
        small.kubectl("rollout", "status", f"daemonset/{SECOND}", "-n", "default", "--timeout=240s")
        reasons = verify_red(small, "REG-SINGLE")
        assert SECOND in reasons["REG-SINGLE"]
    finally:
        small.kubectl("delete", "daemonset", SECOND, "-n", "default", "--cascade=foreground", "--timeout=240s")
        # The kubelet follows the last registration, so the first plugin must register anew.
        small.kubectl("rollout", "restart", "daemonset/nvidia-device-plugin", "-n", "gpuops-system")
        small.kubectl("rollout", "status", "daemonset/nvidia-device-plugin", "-n", "gpuops-system", "--timeout=240s")


@contextmanager
def plugin_removed(lab: Lab) -> Iterator[None]:
    lab.kubectl("delete", "daemonset", "amdgpu-device-plugin", "-n", "gpuops-system", "--cascade=foreground", "--timeout=240s")
    try:
        yield
    finally:
        assert lab.playbook("site").code == 0


def test_the_plugin_is_gone(small: Lab) -> None:
    with plugin_removed(small):
        verify_red(small, "REG-ROLLOUT")


def test_nothing_was_probed_at_all(small: Lab) -> None:
    """Only the node without GPU is in the inventory: nothing fails by itself, and nothing is proven."""
    text = (small.folder / "inventory.yml").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    kept, skip = [], False
    for line in lines:
        if line.strip() in ("nv-1:", "amd-1:", "intel-1:"):
            skip = True
        elif skip and line.strip().startswith("ansible_host:"):
            continue
        else:
            skip = False
            kept.append(line)
    inventory = small.folder / "inventory-cpu-only.yml"
    inventory.write_text("".join(kept), encoding="utf-8")
    try:
        run = small.playbook("verify", inventory=inventory)
        assert run.code != 0
        assert small.evidence()["verdict"] == "fail"
    finally:
        inventory.unlink()


def test_an_inventory_without_hosts_is_red(small: Lab, tmp_path) -> None:  # type: ignore[no-untyped-def]
    inventory = tmp_path / "empty.yml"
    inventory.write_text("all:\n  children:\n    kubernetes_nodes: {}\n", encoding="utf-8")
    run = small.playbook("verify", inventory=inventory)
    assert run.code != 0
    assert "kubernetes_nodes" in run.output


def test_the_cluster_is_whole_after_all_of_this(small: Lab) -> None:
    run = small.playbook("verify")
    assert run.code == 0, run.output[-4000:]
    assert small.evidence()["verdict"] == "pass"
