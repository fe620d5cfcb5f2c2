# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role gpu_preflight stops a play before anything is changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fixtures.fake_api import FakeApi

ROOT = Path(__file__).resolve().parents[3]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run the role on a host with one H100 on a node with an old containerd, with further variables."""
    gpu = {
        "vendor": "nvidia", "driver": "nvidia", "driver_version": "580.95.05", "architecture": "hopper", "partitions": [],
        "resource": "nvidia.com/gpu",
    }  # fmt: skip
    tasks = [
        {"ansible.builtin.set_fact": {"gpu": {"gpus": [gpu]}, "cacheable": True}},
        {"ansible.builtin.import_role": {"name": "gpuops.k8s.gpu_preflight"}},
    ]
    play = [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    with FakeApi() as api:
        about = {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://1.6.36", "kernelVersion": "6.12.48"}
        api.add("/api/v1/nodes", {"metadata": {"name": "nv-1"}, "status": {"nodeInfo": about}})
        kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")

        def playbook(**variables: Any) -> subprocess.CompletedProcess[str]:
            given = json.dumps({"gpu_kubeconfig": kubeconfig, **variables})
            environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1",
                           "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build/collections"), "HOME": str(tmp_path)}  # fmt: skip
            program = Path(sys.executable).parent / "ansible-playbook"
            return subprocess.run(
                [program, "-i", "nv-1,", "-c", "local", "-e", given, tmp_path / "play.yml"],
                env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip

        yield playbook
        assert {method for method, *_rest in api.requests} == {"GET"}


def test_an_old_container_runtime_stops_the_play_with_reason_next_step_and_code(run: Run) -> None:
    done = run()
    assert done.returncode != 0
    assert "nv-1: containerd 1.6.36 cannot hand out devices by CDI" in done.stdout.replace("containerd://", "containerd ")
    assert "Use containerd 1.7 or newer." in done.stdout
    assert "containerd_without_cdi" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_wanted_version_is_judged_before_it_is_installed(run: Run) -> None:
    done = run(gpu_preflight_ignore=["containerd_without_cdi"], nvidia_runtime_version="1.17.4-1")
    assert done.returncode != 0
    assert "toolkit_escape" in done.stdout


def test_what_is_accepted_goes_on(run: Run) -> None:
    done = run(gpu_preflight_ignore=["containerd_without_cdi"])
    assert done.returncode == 0, done.stdout + done.stderr
