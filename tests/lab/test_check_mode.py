# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpuops.k8s.site --check on a cluster that has seen nothing yet."""

from __future__ import annotations

import json
from typing import Any

from tests.lab.harness import Lab


def _lasting(item: dict[str, Any]) -> dict[str, Any]:
    """An object's specification without what controllers change by themselves: a new node's taint goes when it is Ready."""
    return {key: value for key, value in item.get("spec", {}).items() if not (item["kind"] == "Node" and key == "taints")}


def _objects(lab: Lab) -> dict[str, str]:
    """Name and resource version of everything that the play could change."""
    kinds = "namespaces,daemonsets,deployments,pods,nodes"
    items = json.loads(lab.kubectl("get", kinds, "--all-namespaces", "--output", "json"))["items"]
    return {
        f"{item['kind']}/{item['metadata'].get('namespace', '')}/{item['metadata']['name']}": json.dumps(
            {"labels": item["metadata"].get("labels"), "spec": _lasting(item)}, sort_keys=True
        )
        for item in items
    }


def test_check_before_the_first_run_predicts_and_changes_nothing() -> None:
    lab = Lab("test-check", "three_vendors")
    with lab.running():
        before = _objects(lab)
        run = lab.playbook("site", "--check", "--diff")
        assert run.code == 0, run.output[-4000:]
        assert run.changed >= 1, "device plugins are to be predicted"
        assert _objects(lab) == before
        assert not lab.output.exists(), "check mode writes no evidence"
        for name in ("nvidia-device-plugin", "amdgpu-device-plugin", "intel-gpu-plugin"):
            assert name in run.output
