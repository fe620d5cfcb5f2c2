# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module gpu_verdict: compare what is there with what came of it, and leave the evidence."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_verdict
short_description: Judges whether every GPU of the inventory can be used by pods
version_added: 1.0.0
description:
  - Compares the hardware of the nodes with what the cluster advertises, what the kubelets have booked and what probe pods
    opened, and says C(pass) only if all of it agrees for every node and every resource.
  - Nothing that was left out counts as passed. A run in which nothing was checked fails.
  - Writes C(evidence.json), C(junit.xml) and C(report.html). The files describe the run and are no change to any system, so
    the module never reports a change.
options:
  nodes:
    description:
      - The hosts of the inventory, as the filter P(gpuops.k8s.verification_nodes#filter) gives them.
    type: list
    elements: dict
    required: true
    suboptions:
      host:
        description: Name in the inventory.
        type: str
        required: true
      name:
        description: Name of the Kubernetes node, O(nodes[].host) when left out.
        type: str
      facts:
        description: The facts C(gpu) of M(gpuops.k8s.gpu_facts). A host without them fails.
        type: dict
      ledger:
        description:
          - The facts C(kubelet_devices) of M(gpuops.k8s.kubelet_device_facts), read while the probe pods held their devices.
        type: dict
      expected_gpus:
        description: Number of GPUs that the inventory promises; without it what the PCI bus shows is taken as right.
        type: int
  capacity:
    description:
      - RV(gpuops.k8s.gpu_capacity_info#module:nodes).
    type: list
    elements: dict
    required: true
  plugins:
    description:
      - RV(gpuops.k8s.device_plugin_info#module:plugins).
    type: list
    elements: dict
    required: true
  probe:
    description:
      - RV(gpuops.k8s.gpu_allocation_probe#module:probe) of the phase V(release).
    type: dict
    required: true
  replicas:
    description:
      - For shared GPUs, extended resource to the number of pods that share one device.
    type: dict
    default: {}
  vendors:
    description:
      - Vendors whose GPUs are judged; all known ones when left out.
    type: list
    elements: str
  busy:
    description:
      - What a device is that a pod of somebody else holds, V(skip) (left out, with its holder named) or V(fail).
      - A node whose devices are all busy proves nothing, so the verdict is C(fail) either way.
    type: str
    choices: [skip, fail]
    default: skip
  cluster_version:
    description:
      - Version of the API server, for the evidence.
    type: str
    default: ""
  cluster_driver:
    description:
      - Where the cluster comes from, for the evidence.
    type: str
    default: existing
  output_dir:
    description:
      - Folder for the three files; nothing is written without it.
    type: path
  fail_on:
    description:
      - V(fail) lets the task fail when the verdict is C(fail); V(never) leaves that to the play.
    type: str
    choices: [fail, never]
    default: fail
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
    details: Judges as always and writes nothing.
  diff_mode:
    support: none
  platform:
    support: full
    platforms: posix
author:
  - gpuops.k8s contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Judge, and fail unless everything is proven
  gpuops.k8s.gpu_verdict:
    nodes: "{{ hostvars | gpuops.k8s.verification_nodes(ansible_play_hosts_all) }}"
    capacity: "{{ capacity.nodes }}"
    plugins: "{{ plugins.plugins }}"
    probe: "{{ released.probe }}"
    output_dir: ./gpu-verification

- name: Judge shared GPUs, where four pods share one
  gpuops.k8s.gpu_verdict:
    nodes: "{{ hostvars | gpuops.k8s.verification_nodes(ansible_play_hosts_all) }}"
    capacity: "{{ capacity.nodes }}"
    plugins: "{{ plugins.plugins }}"
    probe: "{{ released.probe }}"
    replicas:
      nvidia.com/gpu: 4

- name: Judge, and go on whatever it says
  gpuops.k8s.gpu_verdict:
    nodes: "{{ hostvars | gpuops.k8s.verification_nodes(ansible_play_hosts_all) }}"
    capacity: "{{ capacity.nodes }}"
    plugins: "{{ plugins.plugins }}"
    probe: "{{ released.probe }}"
    fail_on: never
  register: judged
"""

RETURN = r"""
verdict:
  description: C(pass) or C(fail).
  returned: always
  type: str
  sample: pass
summary:
  description: The verdict in one line, with the first reasons against it.
  returned: always
  type: str
totals:
  description: Numbers of nodes, GPUs and checks.
  returned: always
  type: dict
table:
  description: For each node and resource the equation physical, expected, capacity, allocatable, opened, busy.
  returned: always
  type: list
  elements: dict
files:
  description: Paths of the files that were written.
  returned: always
  type: list
  elements: str
"""

import json
import time
from datetime import datetime, timezone
from typing import Any, Dict, List

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuops.k8s.plugins.module_utils._core import junit, report, verdict
from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._core.situation import Situation
from ansible_collections.gpuops.k8s.plugins.module_utils._core.version import VERSION
from ansible_collections.gpuops.k8s.plugins.module_utils._module.verification import (
    chosen_vendors,
    inventory_argument_spec,
    to_nodes,
    to_replicas,
    write_atomically,
)


def argument_spec() -> Dict[str, Any]:
    """The module's options."""
    return {
        **inventory_argument_spec(),
        "capacity": {"type": "list", "elements": "dict", "required": True},
        "plugins": {"type": "list", "elements": "dict", "required": True},
        "probe": {"type": "dict", "required": True},
        "busy": {"type": "str", "choices": ["skip", "fail"], "default": "skip"},
        "cluster_version": {"type": "str", "default": ""},
        "cluster_driver": {"type": "str", "default": "existing"},
        "output_dir": {"type": "path"},
        "fail_on": {"type": "str", "choices": ["fail", "never"], "default": "fail"},
    }


def judge(params: Dict[str, Any]) -> Dict[str, Any]:
    """The evidence for the module's options.

    Raises:
        GpuOpsError: An option is not what its module returns.
    """
    now = time.time()
    try:
        began = float(params["probe"].get("started") or now)
        situation = Situation(
            nodes=to_nodes(params["nodes"]),
            capacity={entry["name"]: entry for entry in params["capacity"]},
            plugins=params["plugins"],
            probe=params["probe"],
            vendors=chosen_vendors(params["vendors"]),
            replicas=to_replicas(params["replicas"]),
            busy=params["busy"],
        )
        about = {
            "collection": VERSION,
            "started": datetime.fromtimestamp(began, timezone.utc).isoformat(timespec="seconds"),
            "seconds": max(0.0, now - began),
            "cluster": {"version": params["cluster_version"], "driver": params["cluster_driver"]},
        }
        return verdict.build(situation, about)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise GpuOpsError(
            f"Judging: the options do not fit together ({type(error).__name__}: {error})",
            "Pass capacity, plugins, probe and nodes as their modules return them.",
        ) from error


def files(evidence: Dict[str, Any]) -> Dict[str, str]:
    """The three files, by name."""
    return {
        "evidence.json": json.dumps(evidence, indent=1, sort_keys=False) + "\n",
        "junit.xml": junit.render(evidence),
        "report.html": report.render(evidence),
    }


def table(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The equation, one line for each node and resource."""
    return [{"node": node["name"], **resource} for node in evidence["nodes"] for resource in node["resources"]]


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    try:
        evidence = judge(module.params)
        folder = module.params["output_dir"]
        written = write_atomically(folder, files(evidence)) if folder and not module.check_mode else []
    except GpuOpsError as error:
        module.fail_json(msg=error.line())
    result = {
        "changed": False,
        "verdict": evidence["verdict"],
        "summary": verdict.summary(evidence),
        "totals": evidence["totals"],
        "table": table(evidence),
        "files": written,
    }
    if evidence["verdict"] != "pass" and module.params["fail_on"] == "fail":
        where = f" Evidence: {written[0]}" if written else ""
        module.fail_json(msg=f"{result['summary']}.{where}", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
