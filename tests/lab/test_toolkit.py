# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's real container toolkit on a node: installed from packages, its CDI spec, a container that it starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpuops_lab.hardware import catalogue
from gpuops_lab.packages import toolkit
from tests.lab.harness import Lab

NODE, HARDWARE = "nv-1", "h100-4"
SPEC = "/etc/cdi/nvidia.yaml"
SOURCE = f"deb [signed-by=/{toolkit.FOLDER}/key.asc] file:/{toolkit.FOLDER} ./"
PACKAGES = (
    "nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1",
)  # fmt: skip
HANDLER = """\
version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
    BinaryName = "/usr/bin/nvidia-container-runtime"
"""
# The simulated driver has no parameters that a hook could mount over those of the container's own /proc.
GENERATE = f"nvidia-ctk cdi generate --mode=nvml --disable-hook=disable-device-node-modification --output={SPEC}"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One node that nothing has provisioned, with the four packages installed."""
    topology: Path = tmp_path_factory.mktemp("toolkit") / "one_node.yml"
    topology.write_text(yaml.safe_dump({"nodes": [{"name": NODE, "hardware": HARDWARE}]}), encoding="utf-8")
    made = Lab("test-toolkit", str(topology))
    with made.running():
        made.inside(NODE, f"echo '{SOURCE}' > /etc/apt/sources.list.d/toolkit.list && apt-get update")
        made.inside(NODE, f"apt-get install --yes {' '.join(f'{name}={toolkit.VERSION}' for name in PACKAGES)}")
        yield made


def test_the_pinned_packages_are_installed(lab: Lab) -> None:
    listed = lab.inside(NODE, f"dpkg-query --show --showformat='${{Package}} ${{Version}}\\n' {' '.join(PACKAGES)}")
    assert sorted(listed.splitlines()) == sorted(f"{name} {toolkit.VERSION}" for name in PACKAGES)
    assert toolkit.VERSION.split("-")[0] in lab.inside(NODE, "nvidia-ctk --version")


def test_no_package_source_but_the_signed_one(lab: Lab) -> None:
    lines = lab.inside(NODE, "cat /etc/apt/sources.list /etc/apt/sources.list.d/*").splitlines()
    assert [line for line in lines if line.strip() and not line.startswith("#")] == [SOURCE]


def test_the_toolkit_writes_the_cdi_spec_of_the_node(lab: Lab) -> None:
    lab.inside(NODE, GENERATE)
    spec = yaml.safe_load(lab.inside(NODE, f"cat {SPEC}"))
    devices = {entry["name"]: [node["path"] for node in entry["containerEdits"]["deviceNodes"]] for entry in spec["devices"]}
    # The lab's own seed makes the ids of its machines, so that two nodes have different ones.
    gpus = [gpu for gpu in catalogue.load(HARDWARE, NODE).gpus if gpu.vendor == "nvidia"]
    expected = {name: [f"/dev/nvidia{gpu.minor}"] for gpu in gpus for name in (str(gpu.minor), gpu.uuid)}
    everything = devices.pop("all")
    assert devices == expected
    assert sorted(everything) == [f"/dev/nvidia{gpu.minor}" for gpu in gpus]
    mounts = [mount["hostPath"] for mount in spec["containerEdits"]["mounts"]]
    assert any(path.endswith(f"libnvidia-ml.so.{gpus[0].driver_version}") for path in mounts), mounts


def test_a_pod_of_the_runtime_class_gets_its_device(lab: Lab) -> None:
    lab.inside(NODE, GENERATE)
    lab.inside(NODE, "mkdir -p /etc/nvidia-container-runtime && "
               "nvidia-ctk config --set nvidia-container-runtime.mode=cdi --in-place")  # fmt: skip
    lab.inside(NODE, f"cat > /etc/containerd/conf.d/nvidia.toml <<'END'\n{HANDLER}END\nsystemctl restart containerd")
    look = "for node in /dev/nvidia[0-9]*; do exec 3<$node && echo opened $node; done"
    for item in (_runtime_class(), _pod("with", look, "nvidia"), _pod("without", look, None)):
        lab.kubectl("apply", "--filename", "-", stdin=json.dumps(item))
    lab.kubectl("wait", "pod/with", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")
    assert lab.kubectl("logs", "with").splitlines() == ["opened /dev/nvidia1"]
    # A container of the default runtime shows that it is the toolkit that gives the device.
    lab.kubectl("wait", "pod/without", "--for=jsonpath={.status.phase}=Failed", "--timeout=120s")
    assert "opened" not in lab.kubectl("logs", "without")


def _runtime_class() -> dict[str, object]:
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}


def _pod(name: str, script: str, runtime_class: str | None) -> dict[str, object]:
    container = {
        "name": "main",
        "image": "gpuops.lab/probe:1",
        "command": ["/bin/sh", "-ec", script],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "1"}],
    }
    chosen = {"runtimeClassName": runtime_class} if runtime_class else {}
    specification = {"restartPolicy": "Never", "containers": [container], "dnsPolicy": "Default", **chosen}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": specification}
