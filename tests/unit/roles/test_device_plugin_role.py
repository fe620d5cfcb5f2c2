# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles gpu_detect and device_plugin run by Ansible itself, against a small API server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.fixtures.fake_api import FakeApi
from tests.fixtures.node_tree import NodeTree
from tests.fixtures.rollout import Controller

ROOT = Path(__file__).resolve().parents[3]


class Site:
    """An inventory of three hosts on this machine, each with its own small tree."""

    def __init__(self, folder, api):
        self.folder, self.api = folder, api
        trees = {name: NodeTree(folder / "trees" / name) for name in ("nv-1", "mixed-1", "cpu-1")}
        trees["nv-1"].nvidia("0000:0c:00.0", 0, "GPU-11111111-0000-0000-0000-000000000001")
        trees["mixed-1"].nvidia("0000:0c:00.0", 0, "GPU-11111111-0000-0000-0000-000000000002")
        trees["mixed-1"].amd("0000:1c:00.0", 0, 128)
        hosts = {
            name: {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "root": str(tree.root)}
            for name, tree in trees.items()
        }
        hosts["mixed-1"]["gpu_node_name"] = "mixed-1.cluster"
        for name in ("nv-1", "mixed-1.cluster", "cpu-1"):
            api.add("/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}}})
        self.inventory = folder / "inventory.yml"
        self.inventory.write_text(yaml.safe_dump({"kubernetes_nodes": {"hosts": hosts}}))
        # Facts come from the trees, so the role that reads the live system is left out here.
        play = {
            "hosts": "kubernetes_nodes",
            "gather_facts": False,
            "tasks": [
                {"gpuops.k8s.gpu_facts": {"root": "{{ root }}"}},
                {"ansible.builtin.import_role": {"name": "gpuops.k8s.device_plugin"}},
            ],
        }
        self.playbook = folder / "play.yml"
        self.playbook.write_text(yaml.safe_dump([play]))
        self.kubeconfig = api.kubeconfig(folder / "kubeconfig")

    def run(self, *arguments, **variables):
        (self.folder / "vars.json").write_text(json.dumps({"gpu_kubeconfig": self.kubeconfig, **variables}))
        command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(self.inventory), str(self.playbook)]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build/collections"),
            "ANSIBLE_LOCAL_TEMP": str(self.folder / "tmp"),
            "ANSIBLE_NOCOLOR": "1",
            "HOME": str(self.folder),
        }
        return subprocess.run(
            [*command, "-e", f"@{self.folder / 'vars.json'}", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def daemonsets(self):
        return {item["metadata"]["name"]: item for item in self.api.items("/apis/apps/v1/daemonsets")}


@pytest.fixture
def site(tmp_path):
    with FakeApi() as api:
        yield Site(tmp_path, api)


def changed(result):
    return sum(int(number) for number in re.findall(r"changed=(\d+)", result.stdout))


def test_check_mode_then_first_run_then_second_run(site):
    Controller(site.api)
    predicted = site.run("--check", "--diff")
    assert predicted.returncode == 0, predicted.stdout + predicted.stderr
    assert changed(predicted) == 1
    assert "+" in predicted.stdout
    assert not [entry for entry in site.api.requests if entry[0] != "GET" and "dryRun" not in entry[2]]
    first = site.run()
    assert first.returncode == 0, first.stdout + first.stderr
    assert set(site.daemonsets()) == {"nvidia-device-plugin", "amdgpu-device-plugin"}
    labels = {item["metadata"]["name"]: item["metadata"]["labels"] for item in site.api.items("/api/v1/nodes")}
    assert "gpuops.k8s/vendor-amd" in labels["mixed-1.cluster"]
    assert "gpuops.k8s/vendor-nvidia" in labels["nv-1"]
    assert labels["cpu-1"] == {"kubernetes.io/os": "linux"}
    second = site.run()
    assert second.returncode == 0, second.stdout + second.stderr
    assert changed(second) == 0


def test_settings_reach_the_plugin_and_absent_removes_it(site):
    Controller(site.api)
    settings = {
        "nvidia": {"image": "mirror.example/nvidia/k8s-device-plugin", "version": "v9", "options": {"mig_strategy": "single"}}
    }
    done = site.run(gpu_device_plugins=settings, gpu_vendors=["nvidia"], gpu_namespace="plugins")
    assert done.returncode == 0, done.stdout + done.stderr
    (item,) = site.daemonsets().values()
    container = item["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "mirror.example/nvidia/k8s-device-plugin:v9"
    assert "--mig-strategy=single" in container["args"]
    assert item["metadata"]["namespace"] == "plugins"
    gone = site.run(gpu_vendors=["nvidia"], gpu_namespace="plugins", device_plugin_state="absent")
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert not site.daemonsets()
    assert "/api/v1/namespaces/plugins" not in site.api.objects


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"gpu_device_plugins": {"nvidia": {"options": {"nonsense": 1}}}}, "Known options: device_id_strategy"),
        ({"gpu_kubeconfig": "/nowhere/kubeconfig"}, "no such file"),
    ],
)
def test_mistakes_are_named_and_change_nothing(site, variables, words):
    Controller(site.api)
    result = site.run(**variables)
    assert result.returncode != 0
    assert words in " ".join(result.stdout.split()), result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert not [entry for entry in site.api.requests if entry[0] != "GET"]


def test_rollout_that_cannot_succeed_fails_with_the_reason(site):
    Controller(site.api, ready=False)
    result = site.run()
    assert result.returncode != 0
    assert "ImagePullBackOff: not found" in " ".join(result.stdout.split()), result.stdout
