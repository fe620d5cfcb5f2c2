# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue: every machine loads, and what cannot be loaded is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuops_lab import shared_facts
from gpuops_lab.errors import LabError
from gpuops_lab.hardware import catalogue

COUNTS = {
    "h100-4": {"nvidia": 4},
    "h100-8": {"nvidia": 8},
    "a100-40gb-4": {"nvidia": 4},
    "l4-2": {"nvidia": 2},
    "l4-2-bmc-audio": {"nvidia": 2},
    "t4-4": {"nvidia": 4},
    "mi300x-8": {"amd": 8},
    "mi300x-8-cpx-nps4": {"amd": 8},
    "mi210-4": {"amd": 4},
    "flex-170-2": {"intel": 2},
    "max-1550-4": {"intel": 4},
    "battlemage-2": {"intel": 2},
    "mixed-nvidia-amd": {"nvidia": 2, "amd": 2},
    "cpu-only": {},
}


def test_the_catalogue_has_exactly_these_machines():
    assert set(catalogue.names()) == set(COUNTS)


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_counts_by_vendor(name):
    machine = catalogue.load(name)
    found = {vendor: len(machine.of(vendor)) for vendor in ("nvidia", "amd", "intel") if machine.of(vendor)}
    assert found == COUNTS[name]
    assert len(machine.gpus) == sum(COUNTS[name].values())
    assert machine.description


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_ids_numbers_and_addresses_are_unique(name):
    machine = catalogue.load(name)
    addresses = [function.address for function in machine.functions]
    assert len(set(addresses)) == len(addresses)
    uuids = [gpu.uuid for gpu in machine.gpus if gpu.uuid]
    assert len(set(uuids)) == len(uuids)
    drms = list(machine.displays) + [gpu.drm for gpu in machine.gpus if gpu.drm]
    drms += [part.drm for gpu in machine.gpus for part in gpu.partitions]
    assert sorted(device.card for device in drms) == list(range(len(drms)))
    renders = [device.render for device in drms if device.render is not None]
    assert sorted(renders) == list(range(128, 128 + len(renders)))
    for function in machine.functions:
        assert not function.parent or function.parent in addresses


def test_loading_twice_gives_the_same_machine():
    assert catalogue.load("h100-8") == catalogue.load("h100-8")
    first, second = (catalogue.load(name).gpus[0].uuid for name in ("h100-4", "h100-8"))
    assert first != second
    assert catalogue.load("l4-2", "nv-1").gpus[0].uuid != catalogue.load("l4-2", "nv-2").gpus[0].uuid
    assert catalogue.load("l4-2", "nv-1") == catalogue.load("l4-2", "nv-1")


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_models_are_known_to_the_collection(name):
    from ansible_collections.gpuops.k8s.plugins.module_utils._vendors import registry

    for gpu in catalogue.load(name).gpus:
        record = registry.VENDORS[gpu.vendor]
        assert gpu.function.vendor == record.pci_vendor_id
        model = record.models[gpu.function.device]
        assert model.architecture == gpu.architecture
        # What a driver reports is a little less than the nominal size, never more.
        assert 0.9 < gpu.memory_bytes / model.memory_bytes <= 1
        assert record.resources[gpu.function.driver] in shared_facts.vendors()[gpu.vendor].resources


@pytest.mark.parametrize(("name", "hint"), [("h100-5", "h100-4"), ("mi300x", "mi300x-8"), ("../../etc/passwd", "cpu-only")])
def test_unknown_machine_names_its_neighbours(name, hint):
    with pytest.raises(LabError) as caught:
        catalogue.load(name)
    assert repr(name) in caught.value.line()
    assert hint in caught.value.line()


GROUP = {"vendor": "nvidia", "product": "X", "device": "2330", "class": "0302", "memory_mib": 1, "at": {"0000:19:00.0": 0}}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (None, "expected keys and values"),
        (["x"], "expected keys and values"),
        ({}, "missing 'description'"),
        ({"description": "x", "gpu": []}, "unknown keys gpu"),
        ({"description": "x", "gpus": [{**GROUP, "vendor": "acme"}]}, "unknown GPU vendor 'acme'"),
        ({"description": "x", "gpus": [{**GROUP, "device": 2330, "at": {"19:00.0": 0}}]}, "PCI address '19:00.0'"),
        ({"description": "x", "gpus": [{**GROUP, "device": "233"}]}, "PCI id '233'"),
        ({"description": "x", "gpus": [{**GROUP, "class": 770}]}, "PCI class"),
        ({"description": "x", "gpus": [{**GROUP, "at": {}}]}, "no addresses"),
        ({"description": "x", "gpus": [GROUP, GROUP]}, "two functions at PCI address 0000:19:00.0"),
        ({"description": "x", "gpus": [{**GROUP, "memory": 4}]}, "unknown keys memory"),
        ({"description": "x", "chassis": "nosuch"}, "nosuch.yml"),
    ],
)
def test_broken_files_are_named_in_one_line(document, text):
    with pytest.raises(LabError) as caught:
        catalogue.parse("x", document, Path("x.yml"))
    assert text in caught.value.line()
    assert "\n" not in caught.value.line()


def test_a_file_that_is_no_yaml(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "FOLDER", tmp_path)
    (tmp_path / "odd.yml").write_text("a: [")
    with pytest.raises(LabError, match=r"cannot read hardware .*odd\.yml"):
        catalogue.load("odd")


def test_a_gpu_without_driver_and_one_held_by_vfio():
    bare = catalogue.parse("x", {"description": "x", "gpus": [GROUP]}, Path("x.yml"))
    assert bare.modules == ()
    assert bare.gpus[0].drm is None
    held = catalogue.parse("x", {"description": "x", "gpus": [{**GROUP, "driver": "vfio-pci"}]}, Path("x.yml"))
    assert held.gpus[0].function.driver == "vfio-pci"
