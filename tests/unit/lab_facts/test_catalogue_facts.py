# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts module on every machine of the lab's catalogue: two programs that know nothing of each other agree."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.gpuops.k8s.plugins.module_utils._node.collect import collect
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS
from gpuops_lab.hardware import catalogue, tree

# Written by hand from the machines' names, not read from the catalogue.
EXPECTED = {
    "h100-4": (4, {"nvidia.com/gpu": 4}),
    "h100-8": (8, {"nvidia.com/gpu": 8}),
    "a100-40gb-4": (4, {"nvidia.com/gpu": 4}),
    "l4-2": (2, {"nvidia.com/gpu": 2}),
    "l4-2-bmc-audio": (2, {"nvidia.com/gpu": 2}),
    "t4-4": (4, {"nvidia.com/gpu": 4}),
    "mi300x-8": (8, {"amd.com/gpu": 8}),
    "mi300x-8-cpx-nps4": (8, {"amd.com/gpu": 64}),
    "mi210-4": (4, {"amd.com/gpu": 4}),
    "flex-170-2": (2, {"gpu.intel.com/i915": 2}),
    "max-1550-4": (4, {"gpu.intel.com/i915": 4}),
    "battlemage-2": (2, {"gpu.intel.com/xe": 2}),
    "mixed-nvidia-amd": (4, {"nvidia.com/gpu": 2, "amd.com/gpu": 2}),
    "cpu-only": (0, {}),
}


@pytest.fixture(scope="module")
def facts_of(tmp_path_factory):
    found = {}

    def read(name):
        if name not in found:
            target = tmp_path_factory.mktemp(name)
            tree.write(catalogue.load(name), target)
            for node in json.loads((target / "device_nodes.json").read_text()):
                if "link" not in node:
                    path = target / node["path"].lstrip("/")
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.touch()
            found[name] = (target, collect(str(target)))
        return found[name]

    return read


def test_every_machine_is_expected():
    assert set(catalogue.names()) == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_machine(name, facts_of):
    count, resources = EXPECTED[name]
    _target, facts = facts_of(name)
    assert facts["problems"] == []
    assert (facts["count"], facts["resources"]) == (count, resources)
    assert facts["runtime"] == dict.fromkeys(facts["vendors"], True)
    keys = []
    for gpu in facts["gpus"]:
        vendor = VENDORS[gpu["vendor"]]
        assert gpu["ready"]
        assert not gpu["model"].startswith("unknown")
        assert gpu["memory_bytes"] > 0
        assert gpu["numa_node"] >= 0
        assert gpu["device_nodes"]
        for kind in ("uuid", "pci_address", "card"):
            if vendor.device_id_fact == kind:
                assert re.search(vendor.device_id_pattern, gpu[kind] + ("-0" if kind == "card" else ""))
                keys.append(gpu[kind])
    assert len(set(keys)) == count
    nodes = [node for gpu in facts["gpus"] for node in gpu["device_nodes"]]
    nodes += [node for gpu in facts["gpus"] for own in gpu["partition_nodes"].values() for node in own]
    assert len(set(nodes)) == len(nodes)


@pytest.mark.parametrize("name", sorted(name for name, (count, _resources) in EXPECTED.items() if count))
def test_machine_that_lost_a_device_node(name, facts_of):
    target, facts = facts_of(name)
    gone = target / facts["gpus"][0]["device_nodes"][0].lstrip("/")
    gone.unlink()
    try:
        broken = collect(str(target))
    finally:
        gone.touch()
    assert broken["count"] == facts["count"]
    assert [gpu["state"] for gpu in broken["gpus"]].count("no_device_node") == 1
    assert sum(broken["resources"].values()) < sum(facts["resources"].values())
    assert [problem["code"] for problem in broken["problems"]] == ["device_node_missing"]


@pytest.mark.parametrize("name", sorted(name for name, (count, _resources) in EXPECTED.items() if count))
def test_machine_without_its_driver(name, facts_of, tmp_path):
    tree.write(catalogue.load(name), tmp_path)
    for address in [gpu["pci_address"] for gpu in facts_of(name)[1]["gpus"]]:
        (tmp_path / "sys/bus/pci/devices" / address / "driver").unlink()
    facts = collect(str(tmp_path))
    assert facts["count"] == EXPECTED[name][0]
    assert {gpu["state"] for gpu in facts["gpus"]} == {"no_driver"}
    assert facts["resources"] == {}
    assert not any(facts["runtime"].values())
