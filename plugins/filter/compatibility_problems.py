# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter compatibility_problems: which versions on the nodes of a play do not go together."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._core import compatibility
from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import Problem
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS

DOCUMENTATION = r"""
name: compatibility_problems
short_description: Says which versions on the nodes do not go together
version_added: 1.0.0
author:
  - gpuops.k8s contributors (@gpuops)
description:
  - Compares kernel drivers, packages to be installed, device plugins, container runtime, kernel and Kubernetes with the
    vendors' lists of what does not go together. What is not known is not judged.
positional: hosts, nodes
options:
  _input:
    description: The magic variable C(hostvars).
    type: dict
    required: true
  hosts:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
  nodes:
    description: The C(nodes) that M(gpuops.k8s.gpu_capacity_info) returned.
    type: list
    elements: dict
    required: true
  wanted:
    description: Vendor to the versions that are to be installed, C(toolkit) and C(plugin).
    type: dict
  ignore:
    description: Codes of problems that are known and accepted.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Go on only with versions that go together
  ansible.builtin.assert:
    that: problems | length == 0
    fail_msg: "{{ problems | map(attribute='message') | join('; ') }}"
  vars:
    problems: "{{ hostvars | gpuops.k8s.compatibility_problems(ansible_play_hosts_all, capacity.nodes) }}"
"""

RETURN = r"""
_value:
  description: One dictionary for each problem, with code, subject, message and hint.
  type: list
  elements: dict
"""


def compatibility_problems(
    hostvars: Mapping[str, Any],
    hosts: Iterable[str],
    nodes: Sequence[Mapping[str, Any]],
    wanted: Optional[Mapping[str, Mapping[str, str]]] = None,
    ignore: Optional[Sequence[str]] = None,
) -> List[Problem]:
    """Problems of all hosts that have GPU facts, each once."""
    known = {node["name"]: node for node in nodes}
    found: Dict[str, Problem] = {}
    for host in hosts:
        variables = hostvars[host]
        gpus = ((variables.get("ansible_facts") or {}).get("gpu") or {}).get("gpus") or []
        name = str(variables.get("gpu_node_name") or host)
        for gpu in gpus:
            vendor = VENDORS[gpu["vendor"]]
            facts = _facts(vendor, gpu, known.get(name) or {}, (wanted or {}).get(vendor.name) or {})
            for entry in compatibility.problems([asdict(rule) for rule in vendor.incompatibilities], facts, name):
                if entry["code"] not in (ignore or ()):
                    found[entry["message"]] = entry
    return list(found.values())


def _facts(vendor: Vendor, gpu: Mapping[str, Any], node: Mapping[str, Any], wanted: Mapping[str, str]) -> Dict[str, str]:
    runtime, _colons, runtime_version = str(node.get("container_runtime") or "").partition("://")
    return {
        "architecture": str(gpu.get("architecture") or ""),
        "driver": str(gpu.get("driver_version") or ""),
        "module": str(gpu.get("driver") or ""),
        "flavor": str(gpu.get("kernel_module_flavor") or ""),
        "partitions": str(1 + len(gpu.get("partitions") or ())),
        "out_of_tree": "yes" if gpu.get("driver_version") else "no",
        "kernel": str(node.get("kernel_version") or ""),
        "kubernetes": str(node.get("kubelet_version") or ""),
        "containerd": runtime_version if runtime == "containerd" else "",
        "plugin": str(wanted.get("plugin") or vendor.plugin.version),
        "toolkit": str(wanted.get("toolkit") or ""),
    }


class FilterModule:
    """The filter of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"compatibility_problems": compatibility_problems}
