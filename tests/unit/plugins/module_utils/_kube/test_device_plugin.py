# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin on a small API server: what is made, changed, refused and removed."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import device_plugin, plugin_objects, plugin_search, rollout
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster, ConnectionOptions
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS
from tests.fixtures.fake_api import FakeApi

SPACE = "/api/v1/namespaces/gpuops-system"
DAEMONSETS = "/apis/apps/v1/namespaces/gpuops-system/daemonsets"


@pytest.fixture
def api():
    with FakeApi() as server:
        for name in ("gpu-1", "gpu-2", "cpu-1"):
            server.add("/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}}})
        yield server


@pytest.fixture
def cluster(api, tmp_path):
    return Cluster.connect(ConnectionOptions(kubeconfig=api.kubeconfig(tmp_path / "kubeconfig")))


def wanted(vendor="nvidia", **params):
    return device_plugin.wanted({"namespace": "gpuops-system", **params}, VENDORS[vendor])


def foreign_daemonset(name="nvdp", namespace="kube-system", image="nvcr.io/nvidia/k8s-device-plugin:v0.17.0", **spec):
    pod = {
        "containers": [{"name": "c", "image": image}],
        "volumes": [{"name": "d", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
        **spec,
    }
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": pod}},
    }


def labels_of(api, node):
    return api.objects[f"/api/v1/nodes/{node}"]["metadata"]["labels"]


def test_first_run_second_run_and_drift(api, cluster):
    state = wanted(nodes=["gpu-1", "gpu-2"])
    first = device_plugin.present(cluster, state, check_mode=False)
    assert set(first.after) == {
        "Node/gpu-1", "Node/gpu-2", "Namespace/gpuops-system", "DaemonSet/nvidia-device-plugin",
    }  # fmt: skip
    assert labels_of(api, "gpu-1")["gpuops.k8s/vendor-nvidia"] == "true"
    assert "gpuops.k8s/vendor-nvidia" not in labels_of(api, "cpu-1")
    writes = len([entry for entry in api.requests if entry[0] != "GET" and "dryRun" not in entry[2]])
    assert writes == 4
    assert not device_plugin.present(cluster, state, check_mode=False).changed
    assert len([entry for entry in api.requests if entry[0] != "GET" and "dryRun" not in entry[2]]) == writes
    path = f"{DAEMONSETS}/nvidia-device-plugin"
    drifted = copy.deepcopy(api.objects[path])
    drifted["spec"]["template"]["spec"]["containers"][0]["image"] = "other:1"
    api.put(path, drifted)
    again = device_plugin.present(cluster, state, check_mode=False)
    assert list(again.after) == ["DaemonSet/nvidia-device-plugin"]
    assert "other:1" in str(again.before)
    assert "other:1" not in str(api.objects[path])


def test_check_mode_changes_nothing_and_predicts(api, cluster):
    state = wanted(nodes=["gpu-1"])
    predicted = device_plugin.present(cluster, state, check_mode=True)
    assert predicted.changed
    assert SPACE not in api.objects
    assert "gpuops.k8s/vendor-nvidia" not in labels_of(api, "gpu-1")
    made = device_plugin.present(cluster, state, check_mode=False)
    assert set(made.after) == set(predicted.after)
    assert not device_plugin.present(cluster, state, check_mode=True).changed


def test_labels_of_other_nodes_stay_unless_pruned(api, cluster):
    device_plugin.present(cluster, wanted(nodes=["gpu-1", "gpu-2"]), check_mode=False)
    assert not device_plugin.present(cluster, wanted(nodes=["gpu-1"]), check_mode=False).changed
    pruned = device_plugin.present(cluster, wanted(nodes=["gpu-1"], prune_nodes=True), check_mode=False)
    assert list(pruned.before) == ["Node/gpu-2"]
    assert "gpuops.k8s/vendor-nvidia" not in labels_of(api, "gpu-2")


def test_unknown_node_is_named_before_any_change(api, cluster):
    with pytest.raises(GpuOpsError, match=r"gpu-9 is not in the cluster.*Known nodes: cpu-1, gpu-1, gpu-2"):
        device_plugin.present(cluster, wanted(nodes=["gpu-1", "gpu-9"]), check_mode=False)
    assert not [entry for entry in api.requests if entry[0] != "GET"]


def test_foreign_plugin_is_refused_or_ignored(api, cluster):
    api.add("/apis/apps/v1/namespaces/kube-system/daemonsets", foreign_daemonset())
    with pytest.raises(GpuOpsError, match="kube-system/nvdp already serves this vendor"):
        device_plugin.present(cluster, wanted(), check_mode=False)
    assert not [entry for entry in api.requests if entry[0] != "GET"]
    assert device_plugin.present(cluster, wanted("amd"), check_mode=False).changed
    assert device_plugin.present(cluster, wanted(foreign="ignore"), check_mode=False).changed


def test_object_of_another_with_our_name_is_left_alone(api, cluster):
    api.add("/api/v1/namespaces", {"metadata": {"name": "gpuops-system"}})
    api.add(DAEMONSETS, foreign_daemonset("nvidia-device-plugin", "gpuops-system"))
    with pytest.raises(GpuOpsError, match="exists and is not ours"):
        device_plugin.present(cluster, wanted(foreign="ignore"), check_mode=False)
    assert not device_plugin.absent(cluster, wanted(), check_mode=False).changed


def test_namespace_of_another_is_not_touched(api, cluster):
    api.add("/api/v1/namespaces", {"metadata": {"name": "gpuops-system", "labels": {"team": "x"}}})
    made = device_plugin.present(cluster, wanted(), check_mode=False)
    assert list(made.after) == ["DaemonSet/nvidia-device-plugin"]
    gone = device_plugin.absent(cluster, wanted(), check_mode=False)
    assert list(gone.before) == ["DaemonSet/nvidia-device-plugin"]
    assert SPACE in api.objects


def test_absent_removes_all_that_was_made_and_only_that(api, cluster):
    before = copy.deepcopy(api.objects)
    device_plugin.present(cluster, wanted(nodes=["gpu-1"]), check_mode=False)
    device_plugin.present(cluster, wanted("amd", nodes=["gpu-2"]), check_mode=False)
    assert device_plugin.absent(cluster, wanted(), check_mode=True).changed
    device_plugin.absent(cluster, wanted(), check_mode=False)
    assert SPACE in api.objects
    device_plugin.absent(cluster, wanted("amd"), check_mode=False)
    assert {path: item["metadata"]["labels"] for path, item in api.objects.items()} == {
        path: item["metadata"]["labels"] for path, item in before.items()
    }
    assert not device_plugin.absent(cluster, wanted("amd"), check_mode=False).changed


@pytest.mark.parametrize("vendor", VENDORS)
def test_object_of_every_vendor(vendor):
    record = VENDORS[vendor]
    item = wanted(vendor).daemonset
    pod = item["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"{record.plugin.image}:{record.plugin.version}"
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", f"gpuops.k8s/vendor-{vendor}": "true"}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert set(item["spec"]["selector"]["matchLabels"]) <= set(item["spec"]["template"]["metadata"]["labels"])
    assert plugin_search.vendor_of(item).name == vendor
    assert plugin_search.offers_devices(item)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"namespace": "Upper"}, 'namespace "Upper": not a valid name'),
        ({"nodes": ["bad_name"]}, 'node "bad_name": not a valid name'),
        ({"node_selector": {"a b": "c"}}, "not a valid label key"),
        ({"node_selector": {"a": True}}, "is no string"),
        ({"node_selector": {"a": "b c"}}, "not a valid label value"),
        ({"image": "no image"}, "not an image reference"),
        ({"version": "a b"}, "not an image tag"),
        ({"tolerations": [{"keys": "a"}]}, "unknown key keys"),
        ({"tolerations": [{"key": "a", "operator": "Is"}]}, "unknown operator"),
        ({"tolerations": [{"operator": "Equal"}]}, "only the operator Exists"),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, "unknown effect"),
        ({"options": {"nonsense": 1}}, "Known options: device_id_strategy"),
        ({"options": {"mig_strategy": "all"}}, "Choose one of none, single, mixed"),
        ({"options": {"pass_device_specs": "perhaps"}}, "no yes or no"),
        ({"options": {"mig_strategy": ["single"]}}, "a single value is needed"),
    ],
)
def test_bad_input_is_one_clear_line(params, words):
    with pytest.raises(GpuOpsError) as caught:
        wanted(**params)
    assert words in caught.value.line()
    assert "\n" not in caught.value.line()


def test_arguments_of_options():
    assert plugin_objects.arguments(VENDORS["intel"], {"shared_dev_num": 3, "enable_monitoring": True}) == [
        "-shared-dev-num=3", "-enable-monitoring=true",
    ]  # fmt: skip
    assert "--pass-device-specs=false" in plugin_objects.arguments(VENDORS["nvidia"], {"pass_device_specs": False})
    with pytest.raises(GpuOpsError, match="no whole number"):
        plugin_objects.arguments(VENDORS["intel"], {"shared_dev_num": "-1"})


@pytest.mark.parametrize(
    ("item", "vendor"),
    [
        (foreign_daemonset(), "nvidia"),
        (foreign_daemonset(image="mirror.example:5000/all/nvidia/k8s-device-plugin@sha256:" + "a" * 64), "nvidia"),
        (foreign_daemonset(image="docker.io/rocm/k8s-device-plugin"), "amd"),
        (foreign_daemonset("gpu-plugin", image="own/build:1", nodeSelector={"gpu.intel.com/x": "true"}), "intel"),
        (foreign_daemonset("hami-device-plugin", image="projecthami/hami:v2"), None),
        (foreign_daemonset("hami", image="projecthami/hami:v2", nodeSelector={"nvidia.com/gpu": "on"}), "nvidia"),
        (foreign_daemonset(volumes=[]), None),
    ],
)
def test_whose_plugin_a_daemonset_is(item, vendor):
    found = plugin_search.vendor_of(item)
    assert (found.name if found else None) == vendor


def daemonset(desired=1, available=0, generation=1, observed=1, updated=None):
    return {
        "metadata": {"name": "d", "namespace": "gpuops-system", "uid": "u", "generation": generation},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"spec": {"nodeSelector": {"gpu": "true"}, "tolerations": [{"key": "x", "operator": "Exists"}]}},
        },
        "status": {
            "desiredNumberScheduled": desired,
            "numberAvailable": available,
            "updatedNumberScheduled": desired if updated is None else updated,
            "observedGeneration": observed,
        },
    }


def pod(node="gpu-1", **status):
    return {
        "metadata": {
            "name": f"d-{node}", "namespace": "gpuops-system", "labels": {"app": "d"}, "ownerReferences": [{"uid": "u"}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "r/i:1"}]},
        "status": status,
    }  # fmt: skip


def waiting(reason, **more):
    return {"containerStatuses": [{"name": "c", "restartCount": 2, "state": {"waiting": {"reason": reason}}, **more}]}


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def test_rollout_is_done_only_when_all_is_new_and_available():
    assert rollout.judge(daemonset(1, 1), [pod(**READY)]).done
    assert not rollout.judge(daemonset(2, 1), [pod(**READY)]).done
    assert not rollout.judge(daemonset(1, 1, generation=2), [pod(**READY)]).done
    assert not rollout.judge(daemonset(1, 1, updated=0), [pod(**READY)]).done
    assert not rollout.judge(daemonset(0, 0), []).done


def test_rollout_that_cannot_succeed_says_why():
    pull = rollout.judge(daemonset(), [pod(**waiting("ImagePullBackOff"))])
    assert "pod d-gpu-1 on node gpu-1: ImagePullBackOff" in pull.failure
    assert "(image r/i:1)" in pull.failure
    last = {"terminated": {"exitCode": 3, "message": "line one\nno devices found\n"}}
    crash = rollout.judge(daemonset(), [pod(**waiting("CrashLoopBackOff", lastState=last))])
    assert "exit code 3, no devices found" in crash.failure
    assert crash.crashed == "d-gpu-1"
    assert not rollout.judge(daemonset(), [pod(**waiting("CrashLoopBackOff", restartCount=1))]).failure
    assert not rollout.judge(daemonset(), [pod(**waiting("ContainerCreating"))]).failure
    stranger = {**pod(**waiting("ImagePullBackOff"))}
    stranger["metadata"] = {**stranger["metadata"], "ownerReferences": []}
    assert not rollout.judge(daemonset(), [stranger]).failure


def test_broken_pod_of_an_older_template_does_not_count():
    newer = daemonset()
    newer["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "2"}
    old = pod(**waiting("CrashLoopBackOff"))
    old["metadata"]["labels"]["pod-template-generation"] = "1"
    assert not rollout.judge(newer, [old]).failure


def test_why_a_node_is_left_out():
    nodes = [
        {"metadata": {"name": "a"}, "spec": {}},
        {"metadata": {"name": "b", "labels": {"gpu": "true"}}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
        {"metadata": {"name": "c", "labels": {"gpu": "true"}}, "spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}},
    ]
    assert rollout.excluded_nodes(daemonset(), nodes) == {
        "a": "without label gpu=true", "b": "taint k=:NoSchedule is not tolerated",
    }  # fmt: skip


def test_waiting_ends_with_the_reason(api, cluster, monkeypatch):
    monkeypatch.setattr(rollout, "_SETTLING", 0.1)
    api.put(f"{DAEMONSETS}/d", daemonset(0))
    with pytest.raises(GpuOpsError, match="it does not run where it should: node cpu-1 is without label gpu=true"):
        rollout.wait(cluster, "gpuops-system", "d", 5)
    stored = api.put(f"{DAEMONSETS}/d", daemonset(1))
    crashing = pod(**waiting("CrashLoopBackOff"))
    crashing["metadata"]["ownerReferences"] = [{"uid": stored["metadata"]["uid"]}]
    api.put(f"{SPACE}/pods/d-gpu-1", crashing)
    api.logs["gpuops-system/d-gpu-1"] = "starting\nfatal: no NVML\n"
    with pytest.raises(GpuOpsError, match=r"CrashLoopBackOff; last line of its log: fatal: no NVML"):
        rollout.wait(cluster, "gpuops-system", "d", 5)


def test_waiting_sees_the_pod_become_ready(api, cluster):
    api.put(f"{DAEMONSETS}/d", daemonset(1, 1))
    api.put(f"{SPACE}/pods/d-gpu-1", pod(**READY))
    assert rollout.wait(cluster, "gpuops-system", "d", 2, ["gpu-1"])["metadata"]["name"] == "d"
    with pytest.raises(GpuOpsError, match=r"not complete after 0\.3 s"):
        rollout.wait(cluster, "gpuops-system", "d", 0.3, ["gpu-1", "gpu-2"])


def test_waiting_reports_what_the_api_refuses_to_make(api, cluster, monkeypatch):
    monkeypatch.setattr(rollout, "_SETTLING", 0.1)
    api.put(f"{DAEMONSETS}/d", daemonset(1))
    event = {
        "metadata": {"name": "e"}, "type": "Warning", "reason": "FailedCreate", "count": 3,
        "message": "violates PodSecurity", "involvedObject": {"uid": "u"},
    }  # fmt: skip
    api.add(f"{SPACE}/events", event)
    with pytest.raises(GpuOpsError, match="FailedCreate: violates PodSecurity"):
        rollout.wait(cluster, "gpuops-system", "d", 5)
