# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated plugin answers as the vendors' own plugins did when they were recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpuops_lab.contract.kubelet import record
from gpuops_lab.hardware import catalogue
from gpuops_lab.hardware.machine import Machine
from tests.fixtures.simulated_plugin import run_plugin

CASES = json.loads((Path(__file__).parents[3] / "fixtures/golden/device_plugins.json").read_text())
SHARING = {
    "version": "v1",
    "sharing": {
        "timeSlicing": {
            "renameByDefault": True,
            "failRequestsGreaterThanOne": True,
            "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
        }
    },
}
RUNS = [
    (0, "mi300x-8", "amd", ()),
    (1, "mi300x-8-cpx-nps4", "amd", ()),
    (2, "flex-170-2", "intel", ()),
    (3, "battlemage-2", "intel", ()),
    (4, "h100-8", "nvidia", ()),
    (5, "h100-8", "nvidia", ("--pass-device-specs",)),
    (6, "t4-4", "nvidia", ("--config-file=CONFIG",)),
]


def as_recorded(machine: Machine, case: dict) -> Machine:
    """The recorded NVIDIA runs had a library's made-up ids and no sysfs: take the same ids, and no NUMA node."""
    if not machine.of("nvidia"):
        return machine
    ids = sorted({device["ID"].split("::")[0] for device in case["resources"][0]["devices"]})
    gpus = tuple(
        replace(gpu, uuid=uuid, function=replace(gpu.function, numa_node=-1))
        for gpu, uuid in zip(machine.gpus, ids, strict=True)
    )
    functions = tuple(replace(function, numa_node=-1) for function in machine.functions)
    return replace(machine, gpus=gpus, functions=functions)


def comparable(resource: dict) -> dict:
    """NVIDIA's plugin walks a map, so the order of device nodes in its answers is left to chance."""
    resource = json.loads(json.dumps(resource))
    for name in ("allocate_1", "allocate_2"):
        if isinstance(resource[name], dict):
            for answer in resource[name]["container_responses"]:
                answer.get("devices", []).sort(key=lambda device: device["host_path"])
    return resource


@pytest.mark.parametrize(("number", "hardware", "vendor", "arguments"), RUNS, ids=lambda value: str(value))
def test_answers_like_the_recorded_plugin(number, hardware, vendor, arguments, tmp_path):
    case = CASES[number]
    machine = as_recorded(catalogue.load(hardware), case)
    (tmp_path / "config.yaml").write_text(json.dumps(SHARING))
    arguments = [word.replace("CONFIG", str(tmp_path / "config.yaml")) for word in arguments]
    with run_plugin(machine, vendor, tmp_path / "node", arguments) as (plugin, kubelet):
        # The hardware of the recorded NVIDIA runs had no control nodes.
        for node in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"):
            (Path(plugin.places.dev) / node).unlink(missing_ok=True)
        requests = kubelet.settle(0.5, 20.0, lambda: False)
        recorded = [record(kubelet, request) for request in requests]
    expected = [comparable(resource) if vendor == "nvidia" else resource for resource in case["resources"]]
    assert len(recorded) == len(expected)
    for ours, theirs in zip(recorded, expected, strict=True):
        if theirs["allocate_2"] is None:  # was not asked for
            for name in ("allocate_2", "allocate_bad", "preferred_2"):
                ours[name] = None
        assert (comparable(ours) if vendor == "nvidia" else ours) == theirs


def test_pass_device_specs_adds_control_nodes_that_are_there(tmp_path):
    with run_plugin(catalogue.load("l4-2"), "nvidia", tmp_path, ["--pass-device-specs=true"]) as (_, kubelet):
        form = record(kubelet, kubelet.requests[0])
    paths = [device["host_path"] for device in form["allocate_1"]["container_responses"][0]["devices"]]
    assert len(paths) == 5
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"} < set(paths)
    assert [device["numa"] for device in form["devices"]] in ([[0], [1]], [[1], [0]])


def test_shared_gpus_refuse_two_of_one_request(tmp_path):
    (tmp_path / "config.yaml").write_text(json.dumps(SHARING))
    arguments = [f"--config-file={tmp_path / 'config.yaml'}"]
    with run_plugin(catalogue.load("t4-4"), "nvidia", tmp_path / "node", arguments) as (_, kubelet):
        form = record(kubelet, kubelet.requests[0])
    assert form["allocate_2"] == (
        'StatusCode.UNKNOWN invalid allocation request for "nvidia.com/gpu.shared": '
        "invalid request: maximum request size for shared resources is 1; found 2"
    )


def test_sockets_after_a_clean_stop_are_as_recorded(tmp_path):
    with run_plugin(catalogue.load("l4-2"), "nvidia", tmp_path) as (plugin, kubelet):
        assert kubelet.sockets() == ["kubelet.sock", "nvidia-gpu.sock"]
        plugin.stop()
        assert kubelet.sockets() == CASES[4]["sockets"]
