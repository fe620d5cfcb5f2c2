# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that only read, as Ansible calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuops.k8s.plugins.modules import device_plugin_info, gpu_facts, kubelet_device_facts
from tests.fixtures.fake_api import FakeApi
from tests.fixtures.module_call import call

Json = dict[str, Any]


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_node_without_any_device_has_facts_that_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], check_mode: bool
) -> None:
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    result = call(gpu_facts.main, capsys, {"root": str(tmp_path), "_ansible_check_mode": check_mode})
    assert result["changed"] is False
    assert result["ansible_facts"]["gpu"]["count"] == 0
    assert result["ansible_facts"]["gpu"]["resources"] == {}


def test_a_checkpoint_is_read_where_the_kubelet_cannot_be_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "device-plugins"
    folder.mkdir()
    entry = {"PodUID": "u-1", "ContainerName": "probe", "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": ["GPU-1"]}}
    data = {"PodDeviceEntries": [entry], "RegisteredDevices": {"nvidia.com/gpu": ["GPU-2", "GPU-1"]}}
    (folder / "kubelet_internal_checkpoint").write_text(json.dumps({"Data": data, "Checksum": 1}), encoding="utf-8")
    facts = call(kubelet_device_facts.main, capsys, {"kubelet_root": str(tmp_path)})["ansible_facts"]["kubelet_devices"]
    assert facts["source"] == "checkpoint"
    assert facts["registered"] == {"nvidia.com/gpu": ["GPU-1", "GPU-2"]}
    [allocation] = facts["allocations"]
    assert allocation["pod_uid"] == "u-1"
    assert allocation["device_ids"] == ["GPU-1"]


def test_no_kubelet_at_all_is_said_and_not_fatal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = call(kubelet_device_facts.main, capsys, {"kubelet_root": str(tmp_path / "none")})["ansible_facts"][
        "kubelet_devices"
    ]
    assert facts["source"] == "none"
    assert facts["registered"] == {}
    assert facts["problems"]


def test_a_cluster_without_device_plugins_lists_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi() as api:
        result = call(device_plugin_info.main, capsys, {"kubeconfig": api.kubeconfig(tmp_path / "kubeconfig")})
    assert result["plugins"] == []
    assert result["changed"] is False


def test_a_missing_kubeconfig_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(device_plugin_info.main, capsys, {"kubeconfig": "/no/such/file"})
    assert result["failed"] is True
    assert "/no/such/file" in result["msg"]
    assert "\n" not in result["msg"]
