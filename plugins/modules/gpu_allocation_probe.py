# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module gpu_allocation_probe: try GPU allocation with real pods and return what was seen."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_allocation_probe
short_description: Tries GPU allocation on all nodes with real pods
version_added: 1.0.0
description:
  - Runs small pods without privileges that list the GPU device nodes they can see, open each of them, and report.
  - It only observes. The module M(gpuops.k8s.gpu_verdict) judges what came of it, so a probe that finds trouble does not
    fail; the module fails only where the cluster cannot be reached or does not let it work.
  - Only idle devices are tried. Pods of others are never touched.
  - The pods go through the scheduler and the kubelet's admission like any other pod; they tolerate the taints of their
    node and end by themselves after a while.
  - Probe pods that an interrupted run has left are removed first, so do not run two probes on one cluster at once.
  - Everything the probe makes is removed again, so the module never reports a change.
options:
  phase:
    description:
      - V(hold) asks the API server for what it must refuse, then starts one pod for each idle device and one pod without a
        request on each node. They go on holding their devices, so that the kubelets' books can be read.
      - V(release) removes them, has one pod take all devices of a node, tries one device too many, selects a node
        without the resource, and removes everything.
      - V(remove) removes everything, whatever went before.
    type: str
    choices: [hold, release, remove]
    required: true
  nodes:
    description:
      - The hosts to probe, as the filter P(gpuops.k8s.verification_nodes#filter) gives them. Needed for O(phase=hold).
    type: list
    elements: dict
    default: []
    suboptions:
      host:
        description: Name in the inventory.
        type: str
        required: true
      name:
        description: Name of the Kubernetes node, O(nodes[].host) when left out.
        type: str
      facts:
        description: The facts C(gpu) of M(gpuops.k8s.gpu_facts).
        type: dict
      ledger:
        description: The facts C(kubelet_devices) of M(gpuops.k8s.kubelet_device_facts); not looked at here.
        type: dict
      expected_gpus:
        description: Number of GPUs that the inventory promises; not looked at here.
        type: int
  held:
    description:
      - RV(probe) of the phase V(hold). Needed for O(phase=release).
    type: dict
  replicas:
    description:
      - For shared GPUs, extended resource to the number of pods that share one device.
    type: dict
    default: {}
  vendors:
    description:
      - Vendors whose GPUs to probe; all known ones when left out.
    type: list
    elements: str
  namespace:
    description:
      - Namespace of the probe pods. It is made if it is missing, and then removed at the end.
    type: str
    default: gpuops-verification
  image:
    description:
      - Image of the probe pods; it needs C(/bin/sh) and C(sleep).
    type: str
    default: docker.io/library/busybox:1.37
  parallelism:
    description:
      - Nodes whose pods are started at the same time.
    type: int
    default: 50
  timeout:
    description:
      - Seconds that the pods of one lot of nodes may take.
    type: int
    default: 120
  runtime_classes:
    description:
      - Extended resource to the RuntimeClass that pods need to use it.
    type: dict
    default: {}
  user:
    description:
      - User id that the pod runs as which takes all devices of a node, so that it is shown that programs need not be root.
        V(0) leaves the user of the image.
    type: int
    default: 0
  groups:
    description:
      - Group ids of the nodes that own the device nodes, for O(user).
    type: list
    elements: int
    default: []
extends_documentation_fragment:
  - gpuops.k8s.cluster_options
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
    details: Nothing is started; RV(probe) then holds no pods and proves nothing.
  diff_mode:
    support: none
  platform:
    support: full
    platforms: posix
author:
  - gpuops.k8s contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Start one pod for each idle GPU
  gpuops.k8s.gpu_allocation_probe:
    phase: hold
    nodes: "{{ hostvars | gpuops.k8s.verification_nodes(ansible_play_hosts_all) }}"
  register: held

- name: Let go, and try the rest
  gpuops.k8s.gpu_allocation_probe:
    phase: release
    held: "{{ held.probe }}"
  register: released

- name: Clean up after an interrupted run
  gpuops.k8s.gpu_allocation_probe:
    phase: remove
"""

RETURN = r"""
probe:
  description: What was seen.
  returned: success
  type: dict
  contains:
    run_id: {description: Name of the run in the label gpuops.k8s/probe-run., returned: success, type: str}
    targets:
      description: For each node and resource what is expected, allocatable, idle, who holds the rest, and why it was left out.
      returned: success
      type: list
      elements: dict
    pods:
      description: Each probe pod with its kind (each, none, all, over, select), place, phase, reason, report and times.
      returned: success
      type: list
      elements: dict
    admission: {description: Each attempt at the API server and its answer., returned: success, type: list, elements: dict}
    removed_leftovers: {description: Pods of earlier runs that were removed., returned: success, type: list, elements: str}
    residue: {description: "What is left in the cluster, null before the end.", returned: success, type: list, elements: str}
"""

import time
import uuid
from typing import Any, Dict

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.probe_phases import Prober, Settings
from ansible_collections.gpuops.k8s.plugins.module_utils._module.runner import cluster_module, run_cluster_module
from ansible_collections.gpuops.k8s.plugins.module_utils._module.verification import (
    chosen_vendors,
    inventory_argument_spec,
    to_nodes,
    to_replicas,
)


def argument_spec() -> Dict[str, Any]:
    """The module's own options."""
    spec = inventory_argument_spec()
    spec["nodes"] = {**spec["nodes"], "required": False, "default": []}
    return {
        "phase": {"type": "str", "choices": ["hold", "release", "remove"], "required": True},
        "held": {"type": "dict"},
        "namespace": {"type": "str", "default": "gpuops-verification"},
        "image": {"type": "str", "default": "docker.io/library/busybox:1.37"},
        "parallelism": {"type": "int", "default": 50},
        "timeout": {"type": "int", "default": 120},
        "runtime_classes": {"type": "dict", "default": {}},
        "user": {"type": "int", "default": 0},
        "groups": {"type": "list", "elements": "int", "default": []},
        **spec,
    }


def settings(params: Dict[str, Any]) -> Settings:
    """The options as the probe's settings.

    Raises:
        GpuOpsError: A number is too small.
    """
    for name, least in (("parallelism", 1), ("timeout", 1), ("user", 0)):
        if params[name] < least:
            raise GpuOpsError(
                f"Reading the option {name}: {params[name]} is below {least}", f"Give a whole number from {least} on."
            )
    held = params["held"] or {}
    lots = 1 + len(params["nodes"]) // params["parallelism"]
    return Settings(
        namespace=held.get("namespace") or params["namespace"],
        image=held.get("image") or params["image"],
        run_id=held.get("run_id") or uuid.uuid4().hex[:8],
        runtime_classes=held.get("runtime_classes") or params["runtime_classes"],
        user=held.get("user") or params["user"],
        groups=held.get("groups") or params["groups"],
        parallelism=params["parallelism"],
        timeout=params["timeout"],
        deadline=300 + (lots + 2) * params["timeout"],
    )


def work(params: Dict[str, Any], cluster: Cluster, check_mode: bool) -> Dict[str, Any]:
    """One phase; in check mode none of it."""
    chosen = settings(params)
    nodes, replicas = to_nodes(params["nodes"]), to_replicas(params["replicas"])
    prober = Prober(cluster, chosen, chosen_vendors(params["vendors"]))
    empty = {"run_id": chosen.run_id, "namespace": chosen.namespace, "started": time.time(), "targets": [], "pods": []}
    empty.update({"image": chosen.image, "admission": [], "removed_leftovers": [], "residue": None})
    if check_mode:
        return {"probe": params["held"] or empty}
    if params["phase"] == "hold":
        return {"probe": prober.hold(nodes, replicas)}
    if params["phase"] == "release":
        return {"probe": prober.release(params["held"])}
    return {"probe": {**empty, "residue": prober.remove()}}


def main() -> None:
    module = cluster_module(argument_spec(), required_if=[("phase", "hold", ["nodes"]), ("phase", "release", ["held"])])
    try:
        try:
            result = run_cluster_module(module, work)
        except (KeyError, TypeError, AttributeError) as error:
            raise GpuOpsError(
                f"Probing: the options do not fit together ({type(error).__name__}: {error})",
                "Pass nodes with the facts of gpu_facts, and as held the key probe of the first phase's result.",
            ) from error
    except GpuOpsError as error:
        module.fail_json(msg=error.line())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
