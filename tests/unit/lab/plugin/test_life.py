# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugin's life: each vendor's way with missing hardware, kubelet restarts and second instances."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from gpuops_lab.contract.kubelet import StandInKubelet
from gpuops_lab.hardware import catalogue
from gpuops_lab.plugin.__main__ import VENDORS
from gpuops_lab.plugin.model import AllocationError, PluginExit
from tests.fixtures.simulated_plugin import RunningPlugin, listing, places_of, run_plugin

MODELS = {"nvidia": "l4-2", "amd": "mi210-4", "intel": "flex-170-2"}


def discover(machine, vendor, folder, *arguments):
    return VENDORS[vendor](arguments, {}, places_of(machine, folder)).discover()


@pytest.mark.parametrize("name", catalogue.names())
@pytest.mark.parametrize("vendor", sorted(MODELS))
def test_every_machine_offers_its_gpus(name, vendor, tmp_path):
    machine = catalogue.load(name)
    expected = sum(1 + len(gpu.partitions) for gpu in machine.of(vendor))
    if vendor == "nvidia" and not expected:
        with pytest.raises(PluginExit, match="no NVIDIA driver"):
            discover(machine, vendor, tmp_path)
        return
    resources = discover(machine, vendor, tmp_path)
    assert sum(len(resource.devices) for resource in resources) == expected
    nodes = [node for resource in resources for device in resource.devices for node in device.nodes]
    assert len(set(nodes)) == len(nodes)
    assert all((tmp_path / node.lstrip("/")).exists() for node in nodes)


def test_names_come_from_the_shared_facts(tmp_path):
    from gpuops_lab import shared_facts

    for vendor, model in MODELS.items():
        (resource,) = discover(catalogue.load(model), vendor, tmp_path / vendor)
        assert resource.name in shared_facts.vendors()[vendor].resources


def test_amd_names_partitions_when_told(tmp_path):
    machine = catalogue.load("mi300x-8-cpx-nps4")
    (resource,) = discover(machine, "amd", tmp_path / "a", "-resource_naming_strategy=mixed")
    assert (resource.name, resource.endpoint, len(resource.devices)) == ("amd.com/cpx_nps4", "amd.com_cpx_nps4", 64)
    whole = discover(catalogue.load("mi210-4"), "amd", tmp_path / "b", "-resource_naming_strategy=mixed")
    assert [resource.name for resource in whole] == ["amd.com/gpu"]


def test_amd_different_modes_end_the_single_strategy(tmp_path):
    places = places_of(catalogue.load("mi300x-8"), tmp_path)
    mode = Path(places.sys) / "module/amdgpu/drivers/pci:amdgpu/0000:0c:00.0/current_memory_partition"
    mode.write_text("NPS4\n")
    with pytest.raises(PluginExit, match="different partition modes"):
        VENDORS["amd"]([], {}, places).discover()
    names = [resource.name for resource in VENDORS["amd"](["-resource_naming_strategy=mixed"], {}, places).discover()]
    assert names == ["amd.com/spx_nps1", "amd.com/spx_nps4"]


def test_amd_skips_a_gpu_without_numa_node_and_misses_a_driver(tmp_path):
    places = places_of(catalogue.load("mi210-4"), tmp_path)
    (Path(places.sys) / "bus/pci/devices/0000:23:00.0/numa_node").unlink()
    (resource,) = VENDORS["amd"]([], {}, places).discover()
    assert len(resource.devices) == 3
    shutil.rmtree(Path(places.sys) / "module/amdgpu/drivers")
    with pytest.raises(PluginExit, match="amdgpu driver unavailable"):
        VENDORS["amd"]([], {}, places).discover()


def test_intel_options(tmp_path):
    machine = catalogue.load("flex-170-2")
    (shared,) = discover(machine, "intel", tmp_path / "a", "-shared-dev-num=3")
    assert [device.id for device in shared.devices][:4] == ["card0-0", "card0-1", "card0-2", "card1-0"]
    resources = discover(machine, "intel", tmp_path / "b", "-enable-monitoring")
    assert [(resource.name, len(resource.devices)) for resource in resources][1] == ("gpu.intel.com/monitoring", 1)
    resources = discover(machine, "intel", tmp_path / "c", "-enable-monitoring", "-monitoring-mode=split")
    assert resources[1].name == "gpu.intel.com/i915_monitoring"
    assert discover(machine, "intel", tmp_path / "d", "-deny-ids=0x56c0") == []
    assert len(discover(machine, "intel", tmp_path / "e", "-allow-ids=0x56c0")[0].devices) == 2
    assert discover(machine, "intel", tmp_path / "f", "-bypath=none")[0].devices[0].mounts == ()
    assert (tmp_path / "a/cdi/intel.cdi.k8s.io-gpu.json").is_file()


def test_intel_shared_preferences(tmp_path):
    machine = catalogue.load("flex-170-2")
    choices = {"none": ["card0-0", "card1-1"], "packed": ["card0-0", "card0-1"], "balanced": ["card0-0", "card0-1"]}
    for policy, expected in choices.items():
        arguments = ["-shared-dev-num=2", f"-allocation-policy={policy}"]
        plugin = VENDORS["intel"](arguments, {}, places_of(machine, tmp_path / policy))
        (resource,) = plugin.discover()
        assert plugin.prefer(resource, ["card0-0", "card0-1", "card1-1"], [], 2) == expected, policy
        with pytest.raises(AllocationError, match="greater than the number of available"):
            plugin.prefer(resource, ["card0-0"], [], 2)


def test_nvidia_shared_preferences_spread_or_pack(tmp_path):
    (tmp_path / "c.yaml").write_text("version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}")
    for policy, units in {"distributed": 2, "packed": 1}.items():
        arguments = [f"--config-file={tmp_path / 'c.yaml'}", f"--shared-devices-allocation-policy={policy}"]
        plugin = VENDORS["nvidia"](arguments, {}, places_of(catalogue.load("l4-2"), tmp_path / policy))
        (resource,) = plugin.discover()
        assert resource.name == "nvidia.com/gpu"
        chosen = plugin.prefer(resource, [device.id for device in resource.devices], [], 2)
        assert len({name.split("::")[0] for name in chosen}) == units


@pytest.mark.parametrize(
    ("strategy", "key"),
    [("volume-mounts", "mounts"), ("cdi-annotations", "annotations"), ("cdi-cri", "cdi_devices"), ("envvar", "envs")],
)
def test_nvidia_device_list_strategies(strategy, key, tmp_path):
    plugin = VENDORS["nvidia"]([f"--device-list-strategy={strategy}"], {}, places_of(catalogue.load("l4-2"), tmp_path))
    (resource,) = plugin.discover()
    answer = plugin.allocate(resource, [resource.devices[0].id])
    assert len(getattr(answer, key)) == 1
    assert (tmp_path / "cdi").is_dir() == strategy.startswith("cdi")


def test_nvidia_index_strategy(tmp_path):
    plugin = VENDORS["nvidia"](["--device-id-strategy=index"], {}, places_of(catalogue.load("l4-2"), tmp_path))
    (resource,) = plugin.discover()
    assert plugin.allocate(resource, [resource.devices[1].id]).envs["NVIDIA_VISIBLE_DEVICES"] == "1"


def test_nvidia_without_driver_exits_or_waits(tmp_path):
    places = places_of(catalogue.load("cpu-only"), tmp_path)
    assert RunningPlugin("nvidia", [], places).ended() == 1
    waiting = RunningPlugin("nvidia", ["--fail-on-init-error=false"], places)
    assert waiting.ended(1.0) is None
    waiting.stop()
    assert waiting.code == 0


def test_amd_and_intel_without_hardware_idle(tmp_path):
    for vendor in ("amd", "intel"):
        places = places_of(catalogue.load("cpu-only"), tmp_path / vendor)
        with StandInKubelet(Path(places.device_plugins)) as kubelet:
            plugin = RunningPlugin(vendor, [], places)
            assert not kubelet.wait_for(1, 1.0)
            plugin.stop()
            assert plugin.code == 0


@pytest.mark.parametrize("vendor", ["nvidia", "intel"])
def test_registers_again_after_a_kubelet_restart(vendor, tmp_path):
    with run_plugin(catalogue.load(MODELS[vendor]), vendor, tmp_path) as (plugin, kubelet):
        assert listing(kubelet).wait(lambda devices: len(devices) == 2)
        kubelet.stop()
        time.sleep(0.5)
        kubelet.start()
        assert kubelet.wait_for(2, 20.0)
        assert listing(kubelet).wait(lambda devices: len(devices) == 2)
        assert plugin.code is None


def test_amd_ends_with_the_kubelet(tmp_path):
    with run_plugin(catalogue.load("mi210-4"), "amd", tmp_path) as (plugin, kubelet):
        stream = listing(kubelet)
        assert stream.wait(lambda devices: len(devices) == 4)
        stream.close()
        assert plugin.ended() == 1


def test_intel_refuses_a_socket_in_use(tmp_path):
    with run_plugin(catalogue.load("flex-170-2"), "intel", tmp_path) as (plugin, _):
        assert RunningPlugin("intel", [], plugin.places).ended() == 1
        assert plugin.code is None


def test_registers_when_the_kubelet_comes_later(tmp_path):
    places = places_of(catalogue.load("l4-2"), tmp_path)
    plugin = RunningPlugin("nvidia", [], places)
    time.sleep(0.5)
    with StandInKubelet(Path(places.device_plugins)) as kubelet:
        assert kubelet.wait_for(1, 20.0)
        # The kubelet removed the socket when it started; the plugin must be there all the same.
        until = time.monotonic() + 20
        while "nvidia-gpu.sock" not in kubelet.sockets() and time.monotonic() < until:
            time.sleep(0.1)
        assert listing(kubelet).wait(lambda devices: len(devices) == 2)
        plugin.stop()


def test_intel_sees_a_card_that_comes_later(tmp_path, monkeypatch):
    monkeypatch.setattr("gpuops_lab.plugin.vendors.intel.IntelPlugin.scan_seconds", 0.3)
    with run_plugin(catalogue.load("flex-170-2"), "intel", tmp_path) as (plugin, kubelet):
        stream = listing(kubelet)
        assert stream.wait(lambda devices: len(devices) == 2)
        for name in ("card1", "renderD129"):
            (Path(plugin.places.dev) / "dri" / name).unlink()
        assert stream.wait(lambda devices: len(devices) == 1)
        (Path(plugin.places.dev) / "dri/card1").touch()
        assert stream.wait(lambda devices: len(devices) == 2)
