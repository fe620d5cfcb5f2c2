# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Capacity of nodes out of API objects, the pods' requests, and the probe's pods."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuops.k8s.plugins.module_utils._kube import capacity, probe_objects
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS

NV = "nvidia.com/gpu"


def container(number: int, key: str = "limits", **more: Any) -> dict[str, Any]:
    return {"resources": {key: {NV: str(number), "cpu": "500m"}}, **more}


def pod(name: str, node: str, phase: str = "Running", number: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": name}, "status": {"phase": phase},
            "spec": {"nodeName": node, "containers": [container(number)]}}  # fmt: skip


def test_requests_take_limits_and_the_largest_init_container() -> None:
    spec = {"containers": [container(1), container(1, "requests")], "initContainers": [container(3)]}
    assert capacity.requests({"spec": spec}) == {NV: 3}


def test_requests_count_sidecars_beside_containers() -> None:
    spec = {"containers": [container(2)], "initContainers": [container(1, restartPolicy="Always"), container(1)]}
    assert capacity.requests({"spec": spec}) == {NV: 3}


def test_capacity_counts_live_pods_and_keeps_resources_at_zero() -> None:
    node = {"metadata": {"name": "a"}, "spec": {"unschedulable": True, "taints": [{"key": NV, "effect": "NoSchedule"}]},
            "status": {"capacity": {NV: "4", "amd.com/gpu": "0", "cpu": "8"}, "allocatable": {NV: "3", "amd.com/gpu": "0"},
                       "conditions": [{"type": "Ready", "status": "False", "reason": "Down", "message": "no runtime"}]},
            }  # fmt: skip
    pods = [pod("one", "a", number=2), pod("done", "a", "Succeeded"), pod("far", "b"), pod("early", "", "Pending")]
    (entry,) = capacity.to_capacity([node], pods, VENDORS)
    assert (entry["ready"], entry["ready_reason"], entry["unschedulable"]) == (False, "Down: no runtime", True)
    amd, nvidia = entry["resources"]
    assert (amd["name"], amd["capacity"], amd["vendor"]) == ("amd.com/gpu", 0, "amd")
    assert (nvidia["capacity"], nvidia["allocatable"], nvidia["allocated"], nvidia["free"]) == (4, 3, 2, 1)
    assert [holder["pod"] for holder in nvidia["holders"]] == ["one"]


def test_probe_pod_goes_through_scheduler_and_has_no_privilege() -> None:
    taints = [{"key": key, "value": "", "effect": "NoSchedule"} for key in (NV, "node.kubernetes.io/unschedulable")]
    made = probe_objects.pod("p", "r", image="i", arguments=["a"], limits={NV: "1"}, node="a", taints=taints)
    spec = made["spec"]
    assert "nodeName" not in spec
    assert spec["automountServiceAccountToken"] is False
    assert spec["activeDeadlineSeconds"] > 0
    assert [each["key"] for each in spec["tolerations"]] == [NV]
    context = spec["containers"][0]["securityContext"]
    assert (context["privileged"], context["readOnlyRootFilesystem"]) == (False, True)
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert "cpu" not in spec["containers"][0]["resources"]["limits"]


def test_report_is_complete_only_with_its_end() -> None:
    log = "noise\ngpuops-probe 1\nenv A b c\ndevice opened /dev/x\ndevice refused /dev/y Permission denied\n"
    cut = probe_objects.parse_report(log)
    assert cut["complete"] is False
    whole = probe_objects.parse_report(log + "end\nmore")
    assert whole["complete"] is True
    assert whole["env"] == {"A": "b c"}
    assert whole["devices"][1] == {"path": "/dev/y", "opened": False, "number": "", "error": "Permission denied"}
    assert probe_objects.parse_report("")["complete"] is False
