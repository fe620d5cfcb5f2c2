# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module device_plugin: a vendor's device plugin on the cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: device_plugin
short_description: Installs or removes the GPU device plugin of a vendor
version_added: 1.0.0
description:
  - Brings a vendor's device plugin, a DaemonSet, to the wanted state by server-side apply with the field manager
    C(gpuops.k8s), and waits until it runs on all of its nodes.
  - Fails early, with the reason, when the rollout cannot succeed - the image cannot be pulled, a pod crashes,
    a node is excluded by a label or a taint.
  - Refuses to install beside another device plugin of the same vendor, because two plugins for one resource lose GPUs.
  - Removes only what carries the label C(app.kubernetes.io/managed-by=gpuops.k8s).
options:
  vendor:
    description:
      - Name of the vendor.
    type: str
    required: true
  state:
    description:
      - Whether the plugin should be there.
    type: str
    choices: [present, absent]
    default: present
  namespace:
    description:
      - Namespace of the DaemonSet. It is made if missing, and removed with the last plugin if this module made it.
    type: str
    default: gpuops-system
  nodes:
    description:
      - Names of the nodes that hold the vendor's GPUs, as Kubernetes names them. They get the label
        C(gpuops.k8s/vendor-<vendor>=true), by which the DaemonSet chooses its nodes, and the plugin must run on each.
      - When left out, labels stay as they are.
    type: list
    elements: str
  prune_nodes:
    description:
      - Whether nodes that are not in O(nodes) lose the label.
    type: bool
    default: false
  node_selector:
    description:
      - Labels by which the DaemonSet chooses its nodes, instead of the label that O(nodes) sets.
    type: dict
  version:
    description:
      - Tag of the image. The default is the version that this collection was tested with.
    type: str
  image:
    description:
      - Image of the plugin, for example in a mirror. With a tag or a digest of its own O(version) is not used.
    type: str
  image_pull_policy:
    description:
      - When the image is pulled.
    type: str
    choices: [Always, IfNotPresent, Never]
    default: IfNotPresent
  image_pull_secrets:
    description:
      - Names of secrets in O(namespace) with which the image is pulled.
    type: list
    elements: str
  tolerations:
    description:
      - Tolerations beside the vendor's own.
    type: list
    elements: dict
  options:
    description:
      - Options of the vendor's plugin by name, for example C(mig_strategy) of NVIDIA, C(resource_naming_strategy) of AMD or
        C(shared_dev_num) of Intel. An unknown name is refused with a list of the known ones.
    type: dict
  foreign:
    description:
      - What to do when another device plugin of this vendor is in the cluster.
      - V(ignore) installs beside it, which is right only if it runs on other nodes.
    type: str
    choices: [refuse, ignore]
    default: refuse
  wait:
    description:
      - Whether to wait until the plugin runs on all of its nodes and each of O(nodes) offers devices, or until it is gone.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait at most.
    type: int
    default: 300
  advertise_timeout:
    description:
      - Seconds that O(nodes) get, within O(wait_timeout), to offer at least one device each once the plugin runs there.
        A kubelet passes what the plugin announces on with its next status, which may take 10 seconds.
      - A plugin that runs and offers nothing is no success, so the module then fails and names the nodes.
    type: int
    default: 60
extends_documentation_fragment:
  - gpuops.k8s.cluster_options
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
    details: The server tries the change without making it. Before the namespace exists the prediction is what would be sent.
  diff_mode:
    support: full
  platform:
    support: full
    platforms: posix
seealso:
  - module: gpuops.k8s.device_plugin_info
  - module: gpuops.k8s.gpu_facts
author:
  - gpuops.k8s contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Offer the NVIDIA GPUs of two nodes
  gpuops.k8s.device_plugin:
    vendor: nvidia
    nodes: [gpu-1, gpu-2]

- name: Share each Intel GPU between two containers, with the image from a mirror
  gpuops.k8s.device_plugin:
    vendor: intel
    image: registry.example/intel/intel-gpu-plugin
    options:
      shared_dev_num: 2

- name: Remove AMD's plugin
  gpuops.k8s.device_plugin:
    vendor: amd
    state: absent
"""

RETURN = r"""
daemonset:
  description: The DaemonSet as it is, or would be in check mode; empty when it is absent.
  returned: always
  type: dict
rollout:
  description: Its numbers desired, ready, available, and the seconds waited.
  returned: when O(state=present) and O(wait=true), not in check mode
  type: dict
  sample: {desired: 2, ready: 2, available: 2, seconds: 3.1}
nodes:
  description: Nodes whose label was changed, or would be.
  returned: always
  type: list
  elements: str
"""

import time
from typing import Any, Dict

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import advertisement, device_plugin, rollout
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster
from ansible_collections.gpuops.k8s.plugins.module_utils._module.runner import cluster_module, run_cluster_module
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS


def _work(params: Dict[str, Any], cluster: Cluster, check_mode: bool) -> Dict[str, Any]:
    vendor = VENDORS.get(params["vendor"])
    if vendor is None:
        raise GpuOpsError(f'Choosing the vendor "{params["vendor"]}": unknown vendor', f"Known vendors: {', '.join(VENDORS)}.")
    state = device_plugin.wanted(params, vendor)
    change = device_plugin.present if params["state"] == "present" else device_plugin.absent
    changes = change(cluster, state, check_mode)
    key = f"DaemonSet/{vendor.plugin.name}"
    result: Dict[str, Any] = {
        "changed": changes.changed,
        "diff": {"before": changes.before, "after": changes.after},
        "daemonset": changes.after.get(key, {}),
        "nodes": [name.split("/", 1)[1] for name in {**changes.before, **changes.after} if name.startswith("Node/")],
    }
    if params["state"] == "present":
        result["daemonset"] = result["daemonset"] or device_plugin.shown(state.daemonset)
    if check_mode or not params["wait"]:
        return result
    if params["state"] == "absent":
        device_plugin.wait_absent(cluster, state, params["wait_timeout"])
        return result
    began = time.monotonic()
    found = rollout.wait(cluster, state.namespace, vendor.plugin.name, params["wait_timeout"], device_plugin.node_names(state))
    left = max(1.0, params["wait_timeout"] - (time.monotonic() - began))
    advertisement.wait(cluster, vendor, device_plugin.node_names(state), min(left, params["advertise_timeout"]))
    status = found.get("status") or {}
    result["rollout"] = {
        "desired": status.get("desiredNumberScheduled") or 0,
        "ready": status.get("numberReady") or 0,
        "available": status.get("numberAvailable") or 0,
        "seconds": round(time.monotonic() - began, 2),
    }
    return result


def main() -> None:
    module = cluster_module(
        {
            "vendor": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "namespace": {"type": "str", "default": "gpuops-system"},
            "nodes": {"type": "list", "elements": "str"},
            "prune_nodes": {"type": "bool", "default": False},
            "node_selector": {"type": "dict"},
            "version": {"type": "str"},
            "image": {"type": "str"},
            "image_pull_policy": {"type": "str", "choices": ["Always", "IfNotPresent", "Never"], "default": "IfNotPresent"},
            "image_pull_secrets": {"type": "list", "elements": "str", "no_log": False},
            "tolerations": {"type": "list", "elements": "dict"},
            "options": {"type": "dict"},
            "foreign": {"type": "str", "choices": ["refuse", "ignore"], "default": "refuse"},
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "int", "default": 300},
            "advertise_timeout": {"type": "int", "default": 60},
        }
    )
    try:
        result = run_cluster_module(module, _work)
    except GpuOpsError as error:
        module.fail_json(msg=error.line())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
