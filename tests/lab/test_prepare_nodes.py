# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpuops.k8s.prepare_nodes: packages from a signed repository, then pods whose GPUs come from the toolkit alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab.harness import Lab, PlaybookRun

DROP_IN = "/etc/containerd/conf.d/50-toolkit-test.toml"
HANDLER = """\
version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
  runtime_type = 'io.containerd.runc.v2'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
    BinaryName = '/usr/bin/nvidia-container-runtime'
    SystemdCgroup = false
"""
PACKAGES = "nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1"
FILES = "find /etc /usr/bin -xdev -type f ! -path '*/ssl/*' -exec sha256sum {} + | sort -k 2"
VARIABLES = {
    "gpu_runtime_classes": {"nvidia.com/gpu": "nvidia"},
    "gpu_verification_user": 65534,
    # The plugin names the devices only; whoever hands them to the pod is the toolkit.
    "gpu_device_plugins": {"nvidia": {"options": {"pass_device_specs": False}}},
}


@pytest.fixture(scope="module")
def before(small: Lab) -> str:
    """The files of the node before anything was installed."""
    return small.inside("nv-1", FILES)


@pytest.fixture(scope="module")
def prepared(small: Lab, before: str) -> Iterator[list[PlaybookRun]]:
    """The node prepared: prediction, first run, second run; in the end removed again."""
    assert before
    yield [small.playbook("prepare_nodes", *arguments) for arguments in (["--check"], [], [])]
    small.playbook("prepare_nodes", "-e", "nvidia_runtime_state=absent")
    small.inside("nv-1", f"rm -f {DROP_IN}; systemctl restart containerd")
    assert small.playbook("site").code == 0


def test_check_predicts_the_first_run_and_the_second_changes_nothing(prepared: list[PlaybookRun]) -> None:
    predicted, first, second = prepared
    for run in prepared:
        assert run.code == 0, run.output[-4000:]
    assert "Would install nvidia-container-toolkit=1.20.2-1" in predicted.output
    assert predicted.recap["nv-1"]["changed"] >= 4
    assert first.recap["nv-1"]["changed"] >= 5
    assert second.changed == 0
    for host in ("amd-1", "intel-1", "cpu-1"):
        assert first.recap[host]["changed"] == 0


@pytest.mark.usefixtures("prepared")
def test_the_four_packages_are_there_at_their_version(small: Lab) -> None:
    versions = small.inside("nv-1", "dpkg-query -W -f '${Version} ${db:Status-Status}\\n' " + PACKAGES).split("\n")
    assert versions[:4] == ["1.20.2-1 installed"] * 4
    assert "1001" in small.inside("nv-1", "apt-cache policy nvidia-container-toolkit")


@pytest.mark.usefixtures("prepared")
def test_pods_get_their_gpus_from_the_toolkit_also_when_they_are_not_root(small: Lab) -> None:
    small.inside("nv-1", f"cat > {DROP_IN} <<'END'\n{HANDLER}END\nsystemctl restart containerd")
    run = small.playbook("site", "-e", json.dumps(VARIABLES))
    assert run.code == 0, run.output[-4000:]
    evidence = small.evidence()
    assert evidence["verdict"] == "pass"
    opened = [check for check in evidence["checks"] if check["id"] == "ASG-OPEN" and check["node"] == "nv-1"]
    assert len(opened) == 3
    assert "all, as user 65534" in [check["device"] for check in opened]
    pods = [value for key, value in evidence["objects"].items() if key.startswith("pod/") and value["node"] == "nv-1"]
    values = [pod["report"]["env"].get("NVIDIA_VISIBLE_DEVICES") for pod in pods if pod["kind"] == "each"]
    assert values == ["void", "void"], "the devices came from somewhere else"


@pytest.mark.usefixtures("prepared")
def test_without_the_runtime_class_no_pod_gets_a_gpu(small: Lab) -> None:
    """Takes the toolkit out of the way: what the test before has shown was its doing."""
    run = small.playbook("verify", "-e", json.dumps({**VARIABLES, "gpu_runtime_classes": {}}))
    assert run.code != 0
    failed = {(check["id"], check["node"]) for check in small.evidence()["checks"] if check["status"] == "fail"}
    assert ("ASG-OPEN", "nv-1") in failed
    assert {node for _id, node in failed} == {"nv-1"}


@pytest.mark.usefixtures("prepared")
def test_absent_leaves_the_node_as_it_was(small: Lab, before: str) -> None:
    small.inside("nv-1", f"rm -f {DROP_IN}; systemctl restart containerd")
    run = small.playbook("prepare_nodes", "-e", "nvidia_runtime_state=absent")
    assert run.code == 0, run.output[-4000:]
    assert small.inside("nv-1", FILES) == before
    assert small.kubectl("get", "runtimeclass", "-o", "name") == ""
    assert small.playbook("prepare_nodes", "-e", "nvidia_runtime_state=absent").changed == 0
