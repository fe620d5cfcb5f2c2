# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a running lab leaves for its users: state.json, Ansible inventory, SSH key and known hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from gpuops_lab.errors import LabError
from gpuops_lab.node.files import NodePlan
from gpuops_lab.packages import toolkit
from gpuops_lab.packages.repository import KEY_FILE
from gpuops_lab.paths import state_folder, write_atomically
from gpuops_lab.pki import new_ssh_key

PROBE_IMAGE = "gpuops.lab/probe:1"


def make_ssh_key(lab: str) -> str:
    """Write the lab's SSH key and return its public line."""
    private, public = new_ssh_key(f"gpuops-lab-{lab}")
    folder = state_folder(lab) / "ssh"
    write_atomically(folder / "id_ed25519", private, 0o600)
    write_atomically(folder / "id_ed25519.pub", public)
    return public


def ssh_arguments(lab: str) -> list[str]:
    """Arguments of ssh that reach the lab's nodes and check their keys."""
    folder = state_folder(lab) / "ssh"
    return [
        "-i", str(folder / "id_ed25519"), "-o", f"UserKnownHostsFile={folder / 'known_hosts'}",
        "-o", "GlobalKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
        "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR",
    ]  # fmt: skip


def write_known_hosts(lab: str, host_keys: dict[str, str]) -> None:
    """Write the nodes' host keys, by address."""
    lines = [f"{address} {' '.join(key.split()[:2])}\n" for address, key in host_keys.items()]
    write_atomically(state_folder(lab) / "ssh" / "known_hosts", "".join(lines))


def write_inventory(lab: str, plans: list[NodePlan], driver: str) -> Path:
    """Write the Ansible inventory that the collection's playbooks run with."""
    folder = state_folder(lab)
    hosts = {plan.spec.name: {"ansible_host": plan.address} for plan in plans}
    document = {
        "all": {
            "vars": {
                "gpu_kubeconfig": str(folder / "kubeconfig"),
                "gpu_cluster_driver": driver,
                "gpu_verification_image": PROBE_IMAGE,
                "gpu_verification_output_dir": str(folder.parents[1] / lab),
                **_package_variables(),
            },
            "children": {
                "kubernetes_nodes": {
                    "hosts": hosts,
                    "vars": {
                        "ansible_user": "root",
                        "ansible_python_interpreter": "/usr/bin/python3",
                        "ansible_ssh_private_key_file": str(folder / "ssh" / "id_ed25519"),
                        "ansible_ssh_common_args": " ".join(ssh_arguments(lab)[2:]),
                    },
                }
            },
        }
    }
    path = folder / "inventory.yml"
    write_atomically(path, "---\n" + yaml.safe_dump(document, sort_keys=False))
    return path


def _package_variables() -> dict[str, Any]:
    """Where nodes without a network take packages from, and what they cannot do."""
    packages = f"/{toolkit.FOLDER}"
    return {
        "nvidia_runtime_repository": {"url": f"file:{packages}", "key": f"{packages}/{KEY_FILE}", "suite": "./"},
        # Each container has a /proc of its own, and this kernel has no NVIDIA driver that would put its files there.
        "nvidia_runtime_config": {
            "nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks": "disable-device-node-modification"
        },
        # Programs of these vendors speak to the driver itself, which is not there.
        "rocm_runtime_source": "none",
        "rocm_runtime_smoke_tests": ["rocm-smi"],
        "oneapi_runtime_source": "none",
        "oneapi_runtime_smoke_tests": [],
    }


def write_state(lab: str, state: dict[str, Any]) -> None:
    """Write state.json."""
    write_atomically(state_folder(lab) / "state.json", json.dumps(state, indent=1) + "\n")


def read_state(lab: str) -> dict[str, Any] | None:
    """Read state.json, None if there is none.

    Raises:
        LabError: It is not JSON.
    """
    path = state_folder(lab) / "state.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LabError(f"cannot read {path}: {error}", "run `gpuops-lab down`, then `gpuops-lab up`") from error
    return document if isinstance(document, dict) else None
