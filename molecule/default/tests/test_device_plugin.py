# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles gpu_detect and device_plugin leave on each node and in the API."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

LAB = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "build" / "lab" / "molecule"
testinfra_hosts = [f"ansible://{name}?ansible_inventory={LAB / 'inventory.yml'}" for name in ("nv-1", "amd-1", "intel-1")]

EXPECTED = {
    "nv-1": ("nvidia-gpu.sock", "nvidia.com/gpu", 2),
    "amd-1": ("amd.com_gpu", "amd.com/gpu", 4),
    "intel-1": ("gpu.intel.com-xe.sock", "gpu.intel.com/xe", 2),
}


def node_name(host: Any) -> str:
    return str(host.check_output("hostname"))


def test_the_plugin_socket_is_there(host: Any) -> None:
    socket = host.file(f"/var/lib/kubelet/device-plugins/{EXPECTED[node_name(host)][0]}")
    assert socket.is_socket


@pytest.mark.parametrize("service", ["containerd", "kubelet"])
def test_services_run(host: Any, service: str) -> None:
    assert host.service(service).is_running
    assert host.service(service).is_enabled


def test_the_node_offers_what_it_holds(host: Any) -> None:
    name = node_name(host)
    _, resource, count = EXPECTED[name]
    kubectl = json.loads((LAB / "state.json").read_text(encoding="utf-8"))["kubectl"]
    arguments = [kubectl, "--kubeconfig", LAB / "kubeconfig", "get", "node", name, "--output", "json"]
    status = json.loads(subprocess.run(arguments, capture_output=True, check=True).stdout)["status"]
    assert status["capacity"][resource] == str(count)
    assert status["allocatable"][resource] == str(count)
