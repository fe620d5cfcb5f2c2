# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault that would change nothing is refused: a test with it could not fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuops_lab.errors import LabError
from gpuops_lab.fault import kinds
from gpuops_lab.fault.kinds import Fault, Target

IDS = ["GPU-1", "GPU-2::0", "GPU-2::1"]


class OnDisk(Target):
    """A node as its run-time folder shows it; no lab runs."""

    @property
    def folder(self) -> Path:
        return Path(str(self.place)) / self.node


@pytest.fixture
def node(tmp_path: Path) -> OnDisk:
    plugins = tmp_path / "nv-1" / "kubelet" / "device-plugins"
    plugins.mkdir(parents=True)
    hardware = tmp_path / "nv-1" / "hardware"
    hardware.mkdir()
    (hardware / "device_nodes.json").write_text(json.dumps([{"path": "/dev/nvidia0"}]))
    document = {"Data": {"PodDeviceEntries": None, "RegisteredDevices": {"nvidia.com/gpu": IDS}}, "Checksum": 1}
    (plugins / "kubelet_internal_checkpoint").write_text(json.dumps(document))
    return OnDisk(tmp_path, "nv-1")  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["", "GPU-1", "GPU-2::1", "GPU-2"])
def test_a_device_that_is_offered_can_break(node: OnDisk, device: str) -> None:
    kinds.apply(node, Fault("device-unhealthy", "nvidia.com/gpu", device))
    assert [fault.device for fault in kinds.read_applied(node)] == [device]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("device-missing", "*", "GPU-9"), "no plugin of node nv-1 offers the device GPU-9"),
        (Fault("device-missing", "*", "GPU-"), "no plugin of node nv-1 offers the device GPU-"),
        (Fault("device-missing", "amd.com/gpu"), "node nv-1 offers no amd.com/gpu"),
    ],
)
def test_what_is_not_there_cannot_break(node: OnDisk, fault: Fault, message: str) -> None:
    with pytest.raises(LabError, match=message) as caught:
        kinds.apply(node, fault)
    assert "GPU-1" in str(caught.value.hint) or "nvidia.com/gpu" in str(caught.value.hint)
    assert kinds.read_applied(node) == []


def test_a_node_without_gpu_has_nothing_to_break(node: OnDisk) -> None:
    (node.folder / "hardware" / "device_nodes.json").write_text("[]")
    with pytest.raises(LabError, match="node nv-1 has no GPU"):
        kinds.apply(node, Fault("device-missing"))


def test_a_fault_may_wait_for_its_plugin(node: OnDisk) -> None:
    (node.folder / "kubelet" / "device-plugins" / "kubelet_internal_checkpoint").unlink()
    kinds.apply(node, Fault("device-missing", "nvidia.com/gpu", "GPU-7"))
    assert len(kinds.read_applied(node)) == 1


def test_a_device_with_one_fault_can_get_another(node: OnDisk) -> None:
    kinds.apply(node, Fault("device-missing", "*", "GPU-1"))
    path = node.folder / "kubelet" / "device-plugins" / "kubelet_internal_checkpoint"
    path.write_text(json.dumps({"Data": {"RegisteredDevices": {"nvidia.com/gpu": IDS[1:]}}, "Checksum": 1}))
    kinds.apply(node, Fault("device-unhealthy", "*", "GPU-1"))
    assert len(kinds.read_applied(node)) == 2
