# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which vendor's plugin goes to which nodes, and mistakes in the variables."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpuops.k8s.plugins.filter.device_plugin_targets import SETTINGS, device_plugin_targets
from ansible_collections.gpuops.k8s.plugins.modules import device_plugin


def host(*gpus, **variables):
    found = [{"vendor": vendor, "resource": resource} for vendor, resource in gpus]
    return {"ansible_facts": {"gpu": {"gpus": found}}, **variables}


NVIDIA, AMD = ("nvidia", "nvidia.com/gpu"), ("amd", "amd.com/gpu")
HOSTS = {
    "b": host(NVIDIA, NVIDIA),
    "a": host(NVIDIA, AMD, gpu_node_name="a.cluster"),
    "broken": host(("nvidia", "")),
    "cpu": host(),
}


def test_each_vendor_goes_where_its_usable_gpus_are():
    assert device_plugin_targets(HOSTS, list(HOSTS), [], {"amd": {"version": "2"}}) == [
        {"vendor": "nvidia", "nodes": ["a.cluster", "b"], "settings": {}, "complete": True},
        {"vendor": "amd", "nodes": ["a.cluster"], "settings": {"version": "2"}, "complete": True},
    ]
    assert [target["vendor"] for target in device_plugin_targets(HOSTS, list(HOSTS), ["amd"])] == ["amd"]


def test_host_without_facts_makes_the_answer_incomplete():
    (target,) = device_plugin_targets({**HOSTS, "gone": {}}, ["b", "gone"])
    assert target["complete"] is False


def test_no_gpu_at_all_is_no_target():
    assert device_plugin_targets(HOSTS, ["cpu", "broken"]) == []


@pytest.mark.parametrize(
    ("vendors", "settings", "words"),
    [
        (["nvidai"], {}, "Reading gpu_vendors: unknown vendor nvidai. Known vendors: nvidia, amd, intel."),
        ([], {"nvidai": {}}, "Reading gpu_device_plugins: unknown vendor nvidai"),
        (["intel"], {}, "no host of the play has a usable GPU of it"),
        ([], {"nvidia": {"imagee": "x"}}, "unknown setting imagee. Known settings: version"),
        ([], {"nvidia": {"options": {"nonsense": 1}}}, "Known options: device_id_strategy"),
        ([], {"amd": {"tolerations": [{"keys": "x"}]}}, "unknown key keys"),
        ([], {"intel": {"image": "no image"}}, "not an image reference"),
    ],
)
def test_mistakes_are_one_line(vendors, settings, words):
    with pytest.raises(AnsibleFilterError) as caught:
        device_plugin_targets(HOSTS, list(HOSTS), vendors, settings)
    assert words in str(caught.value)


def test_settings_are_options_of_the_module():
    for name in SETTINGS:
        assert f"  {name}:\n" in device_plugin.DOCUMENTATION
