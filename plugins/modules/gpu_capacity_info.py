# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module gpu_capacity_info: GPU resources of every node, advertised, held and free."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_capacity_info
short_description: Reads the GPU resources of all nodes and who holds them
version_added: 1.0.0
description:
  - Lists the nodes and the pods once and returns, for each node and each GPU resource of a known vendor,
    what it advertises, what pods hold and what is free.
  - Resources that stand at 0 are returned too, because a plugin that is gone leaves its resource behind at 0.
options:
  vendors:
    description:
      - Vendors whose resources to return; all known ones when left out.
    type: list
    elements: str
  node_names:
    description:
      - Nodes to return; all when left out.
    type: list
    elements: str
extends_documentation_fragment:
  - gpuops.k8s.cluster_options
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    support: full
    platforms: posix
author:
  - gpuops.k8s contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Read what the cluster offers
  gpuops.k8s.gpu_capacity_info:
    kubeconfig: ~/.kube/config
  register: capacity

- name: Only AMD's GPUs of one node
  gpuops.k8s.gpu_capacity_info:
    vendors: [amd]
    node_names: [amd-1]

- name: Stop if a node has no free GPU
  ansible.builtin.assert:
    that: capacity.nodes | map(attribute='resources') | flatten | map(attribute='free') | min > 0
"""

RETURN = r"""
nodes:
  description: One entry for each node, sorted by name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name of the node., returned: success, type: str, sample: nv-1}
    ready: {description: Whether the node is Ready., returned: success, type: bool}
    ready_reason: {description: Why it is not., returned: success, type: str}
    unschedulable: {description: Whether the node is cordoned., returned: success, type: bool}
    taints: {description: "The node's taints: key, value, effect.", returned: success, type: list, elements: dict}
    hostname_label: {description: Value of the label kubernetes.io/hostname., returned: success, type: str}
    kubelet_version: {description: Version of the kubelet., returned: success, type: str, sample: v1.36.3}
    container_runtime: {description: Container runtime and its version., returned: success, type: str, sample: containerd://2.4.2}
    kernel_version: {description: Version of the kernel., returned: success, type: str, sample: 6.12.48-amd64}
    resources:
      description: One entry for each GPU resource that the node lists.
      returned: success
      type: list
      elements: dict
      contains:
        name: {description: Extended resource., returned: success, type: str, sample: nvidia.com/gpu}
        vendor: {description: Vendor that it belongs to., returned: success, type: str, sample: nvidia}
        capacity: {description: Devices that the kubelet knows., returned: success, type: int}
        allocatable: {description: Devices that are healthy., returned: success, type: int}
        allocated: {description: Devices that live pods ask for., returned: success, type: int}
        free: {description: Devices that are left., returned: success, type: int}
        holders:
          description: Pods that hold devices, each with namespace, pod, uid, quantity and whether it is a probe pod.
          returned: success
          type: list
          elements: dict
cluster_version:
  description: Version of the API server.
  returned: success
  type: str
  sample: v1.36.3
"""

from typing import Any, Dict

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import capacity
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster
from ansible_collections.gpuops.k8s.plugins.module_utils._module.runner import cluster_module, run_cluster_module
from ansible_collections.gpuops.k8s.plugins.module_utils._module.verification import chosen_vendors, vendors_argument_spec


def work(params: Dict[str, Any], cluster: Cluster, check_mode: bool) -> Dict[str, Any]:
    """Read; the same in check mode."""
    nodes = capacity.read(cluster, chosen_vendors(params["vendors"]))
    wanted = params["node_names"]
    return {
        "nodes": [node for node in nodes if not wanted or node["name"] in wanted],
        "cluster_version": cluster.version(),
    }


def main() -> None:
    module = cluster_module({**vendors_argument_spec(), "node_names": {"type": "list", "elements": "str"}})
    try:
        result = run_cluster_module(module, work)
    except GpuOpsError as error:
        module.fail_json(msg=error.line())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
