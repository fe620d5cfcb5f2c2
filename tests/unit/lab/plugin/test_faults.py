# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults: the pure view of a resource, the control file, and what a kubelet sees of each kind."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops_lab.contract.kubelet import Listing
from gpuops_lab.hardware import catalogue
from gpuops_lab.plugin import faults
from gpuops_lab.plugin.api import deviceplugin_pb2 as api
from gpuops_lab.plugin.faults import Fault
from gpuops_lab.plugin.model import Device, Resource
from tests.fixtures.simulated_plugin import listing, run_plugin

VENDOR_IDS = ("GPU-0236b5a8-03fb-36c0-02cc-b0a261f9e91f", "0000:0c:00.0", "card0-0", "amdgpu_xcp_3", "GPU-0a::1")
heads = st.sampled_from(["card", "0000:0c:00.", "amdgpu_xcp_"])
ids = st.lists(st.builds("{}{}".format, heads, st.integers(0, 9)), min_size=1, max_size=8, unique=True)
changes = st.sampled_from(["device-missing", "device-unhealthy", "device-flap", "duplicate-id", "wrong-device"])


def resource_of(names):
    return Resource("x/gpu", "x.sock", tuple(Device(name, (f"/dev/{name}",), name) for name in names))


@given(ids, changes, st.integers(0, 1))
def test_every_change_of_the_list_can_be_seen(names, kind, second):
    resource = resource_of(names)
    seen = faults.view(resource, [Fault(kind)], now=float(second))
    if kind == "device-flap" and second == 0:
        assert seen == resource
        return
    assert seen != resource
    assert len({device.id for device in seen.devices}) == len(seen.devices)
    difference = {"device-missing": -1, "duplicate-id": 1}.get(kind, 0)
    assert len(seen.devices) == len(names) + difference


@given(ids, st.lists(changes, max_size=6))
def test_any_mixture_is_survived(names, kinds):
    faults.view(resource_of(names), [Fault(kind) for kind in kinds], now=1.0)


@pytest.mark.parametrize("device_id", VENDOR_IDS)
def test_a_second_id_looks_like_the_first(device_id):
    second = faults.second_id(device_id, {device_id})
    assert second != device_id
    assert "".join("9" if c.isalnum() else c for c in second) == "".join("9" if c.isalnum() else c for c in device_id)


def test_duplicate_and_wrong_device_hand_out_anothers_nodes():
    resource = resource_of(["a0", "a1"])
    double = faults.view(resource, [Fault("duplicate-id", "a1")])
    assert [device.nodes for device in double.devices] == [("/dev/a0",), ("/dev/a1",), ("/dev/a1",)]
    wrong = faults.view(resource, [Fault("wrong-device", "a0")])
    assert [device.nodes for device in wrong.devices] == [("/dev/a1",), ("/dev/a1",)]
    assert faults.view(resource, [Fault("wrong-device", "nosuch")]) == resource


def test_control_file(tmp_path):
    watch = faults.Watch(tmp_path)
    assert not watch.poll()
    faults.write(tmp_path, {"*": [{"kind": "hang"}], "x/gpu": [{"kind": "allocate-slow", "seconds": 2}]})
    assert faults.read(tmp_path)["x/gpu"] == [{"kind": "allocate-slow", "seconds": 2}]
    assert watch.poll()
    assert [fault.kind for fault in watch.of("x/gpu")] == ["hang", "allocate-slow"]
    assert [fault.kind for fault in watch.of("y/gpu")] == ["hang"]
    assert not watch.poll()
    (tmp_path / faults.FILE).write_text("{")
    assert not watch.poll()
    assert "cannot read" in watch.problem
    assert watch.faults
    faults.write(tmp_path, {})
    assert not (tmp_path / faults.FILE).exists()
    assert watch.poll()
    assert watch.faults == {}


@pytest.mark.parametrize(
    "document", [[], {"x": {}}, {"x": [{"kind": "nosuch"}]}, {"x": [{"device": "a"}]}, {"x": [{"kind": "hang", "when": 1}]}]
)
def test_broken_faults_are_refused(tmp_path, document):
    with pytest.raises(ValueError, match=r"\w"):
        faults.write(tmp_path, document)
    (tmp_path / faults.FILE).write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"\w"):
        faults.read(tmp_path)


def test_kinds_have_descriptions():
    lists = {"device-missing", "device-unhealthy", "device-flap", "duplicate-id"}
    calls = {"allocate-error", "allocate-slow", "wrong-device"}
    processes = {"socket-removed", "crash", "hang", "second-registration"}
    assert lists | calls | processes == set(faults.KINDS)
    assert all(faults.KINDS.values())


@pytest.fixture
def amd(tmp_path):
    with run_plugin(catalogue.load("mi210-4"), "amd", tmp_path) as pair:
        yield pair


@pytest.fixture
def intel(tmp_path):
    with run_plugin(catalogue.load("flex-170-2"), "intel", tmp_path) as pair:
        yield pair


def put(plugin, kind="", **more):
    faults.write(plugin.sockets, {"*": [{"kind": kind, **more}]} if kind else {})


def test_missing_and_back(amd):
    plugin, kubelet = amd
    stream = listing(kubelet)
    assert len(stream.wait(lambda devices: True)) == 4
    put(plugin, "device-missing", device="0000:43:00.0")
    left = stream.wait(lambda devices: len(devices) == 3)
    assert "0000:43:00.0" not in {device.ID for device in left}
    put(plugin)
    assert stream.wait(lambda devices: len(devices) == 4)
    assert not stream.ended.is_set()


def test_unhealthy_and_back(amd):
    plugin, kubelet = amd
    stream = listing(kubelet)
    put(plugin, "device-unhealthy")
    devices = stream.wait(lambda devices: any(device.health == "Unhealthy" for device in devices))
    assert [device.health for device in devices].count("Unhealthy") == 1
    put(plugin)
    assert stream.wait(lambda devices: all(device.health == "Healthy" for device in devices))


def test_flap_changes_several_times(amd):
    plugin, kubelet = amd
    stream = listing(kubelet)
    stream.wait(lambda devices: True)
    put(plugin, "device-flap", seconds=0.5)
    deadline = time.monotonic() + 20
    while len(stream.lists) < 5 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(stream.lists) >= 5
    put(plugin)
    assert stream.wait(lambda devices: all(device.health == "Healthy" for device in devices))


def test_duplicate_id_gives_the_same_nodes_twice(amd):
    plugin, kubelet = amd
    stream = listing(kubelet)
    put(plugin, "duplicate-id", device="0000:23:00.0")
    devices = stream.wait(lambda devices: len(devices) == 5)
    assert len({device.ID for device in devices}) == 5
    first, second = (nodes_of(kubelet, name) for name in ("0000:23:00.0", "0000:23:00.1"))
    assert first == second != nodes_of(kubelet, "0000:43:00.0")


def nodes_of(kubelet, *names):
    stub = kubelet.stub(kubelet.requests[-1].endpoint)
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=names)])
    return [spec.host_path for spec in stub.Allocate(request, timeout=30).container_responses[0].devices]


def test_allocate_error_slow_and_wrong(intel):
    plugin, kubelet = intel
    stream = listing(kubelet)
    stream.wait(lambda devices: True)
    right = nodes_of(kubelet, "card0-0")
    put(plugin, "allocate-error", message="no more")
    until(lambda: plugin.life._endpoints["gpu.intel.com/i915"].service.active)
    with pytest.raises(grpc.RpcError, match="no more"):
        nodes_of(kubelet, "card0-0")
    put(plugin, "wrong-device")
    until(lambda: faults.find(plugin.life._endpoints["gpu.intel.com/i915"].service.active, "wrong-device"))
    assert nodes_of(kubelet, "card0-0") == nodes_of(kubelet, "card1-0") != right
    put(plugin, "allocate-slow", seconds=1.5)
    until(lambda: faults.find(plugin.life._endpoints["gpu.intel.com/i915"].service.active, "allocate-slow"))
    started = time.monotonic()
    assert nodes_of(kubelet, "card0-0") == right
    assert time.monotonic() - started >= 1.5


def until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def test_socket_removed_and_back(intel):
    plugin, kubelet = intel
    put(plugin, "socket-removed")
    until(lambda: kubelet.sockets() == ["kubelet.sock"])
    time.sleep(0.6)
    assert kubelet.sockets() == ["kubelet.sock"]
    put(plugin)
    assert kubelet.wait_for(2, 20.0)
    assert Listing(kubelet.stub(kubelet.requests[-1].endpoint)).wait(lambda devices: len(devices) == 2)


def test_crash(intel):
    plugin, _ = intel
    put(plugin, "crash")
    assert plugin.ended() == 1


def test_crash_of_another_resource_does_not_matter(intel):
    plugin, _ = intel
    faults.write(plugin.sockets, {"nvidia.com/gpu": [{"kind": "crash"}]})
    assert plugin.ended(1.0) is None


def test_hang_registers_and_lists_nothing(intel):
    plugin, kubelet = intel
    assert listing(kubelet).wait(lambda devices: len(devices) == 2)
    put(plugin, "hang")
    assert kubelet.wait_for(2, 20.0)
    stream = listing(kubelet)
    assert stream.wait(lambda devices: True, 1.5) is None
    assert not stream.ended.is_set()
    put(plugin)
    assert stream.wait(lambda devices: len(devices) == 2)


@pytest.mark.parametrize("vendor", ["intel", "amd"])
def test_second_registration_and_back(vendor, request):
    plugin, kubelet = request.getfixturevalue(vendor)
    first = listing(kubelet)
    assert first.wait(lambda devices: True)
    put(plugin, "second-registration")
    assert kubelet.wait_for(2, 20.0)
    assert kubelet.requests[0].resource_name == kubelet.requests[1].resource_name
    assert kubelet.requests[0].endpoint != kubelet.requests[1].endpoint
    first.close()  # as a kubelet does that follows the newest registration
    assert listing(kubelet).wait(lambda devices: len(devices) >= 2)
    put(plugin)
    assert kubelet.wait_for(3, 20.0)
    assert kubelet.requests[2].endpoint == kubelet.requests[0].endpoint
    assert not os.path.exists(Path(plugin.sockets, kubelet.requests[1].endpoint))
    assert plugin.ended(0.5) is None
