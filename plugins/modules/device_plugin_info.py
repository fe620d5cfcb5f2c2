# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module device_plugin_info: the device plugins of a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: device_plugin_info
short_description: Lists the GPU device plugins of a cluster and how they are doing
version_added: 1.0.0
description:
  - Lists all DaemonSets that look like a device plugin of a known vendor, those of this collection and others -
    by label, by the image's repository, or by the mount of the kubelet's folder together with the vendor's name.
  - Changes nothing.
options:
  vendors:
    description:
      - Vendors to list; all when left out.
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
seealso:
  - module: gpuops.k8s.device_plugin
author:
  - gpuops.k8s contributors (@gpuops)
"""

EXAMPLES = r"""
- name: List the device plugins
  gpuops.k8s.device_plugin_info:
  register: device_plugins

- name: Show the pods that are not ready, with the reason
  ansible.builtin.debug:
    msg: "{{ device_plugins.plugins | map(attribute='pods') | flatten | rejectattr('ready') }}"
"""

RETURN = r"""
plugins:
  description: One entry for each DaemonSet, in the order of namespace and name.
  returned: always
  type: list
  elements: dict
  contains:
    vendor: {description: Name of the vendor., returned: always, type: str, sample: nvidia}
    resources: {description: Resources that the vendor's plugin can offer., returned: always, type: list, elements: str}
    name: {description: Name of the DaemonSet., returned: always, type: str}
    namespace: {description: Its namespace., returned: always, type: str}
    owned: {description: Whether this collection made it., returned: always, type: bool}
    image: {description: Image of the plugin's container., returned: always, type: str}
    version: {description: Tag or digest of the image., returned: always, type: str}
    desired: {description: Number of nodes it should run on., returned: always, type: int}
    ready: {description: Number of nodes where it is ready., returned: always, type: int}
    available: {description: Number of nodes where it is available., returned: always, type: int}
    arguments: {description: Arguments of the plugin., returned: always, type: list, elements: str}
    pods:
      description: Its pods, each with name, node, phase, ready, restarts and reason.
      returned: always
      type: list
      elements: dict
"""

from typing import Any, Dict, List

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import plugin_search
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster
from ansible_collections.gpuops.k8s.plugins.module_utils._module.runner import cluster_module, run_cluster_module
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS


def _work(params: Dict[str, Any], cluster: Cluster, check_mode: bool) -> Dict[str, Any]:
    unknown = [name for name in params["vendors"] or [] if name not in VENDORS]
    if unknown:
        what = f"Listing the device plugins of {', '.join(unknown)}: unknown vendor"
        raise GpuOpsError(what, f"Known vendors: {', '.join(VENDORS)}.")
    pods: Dict[str, List[Dict[str, Any]]] = {}
    found = []
    for item in cluster.list(plugin_search.DAEMONSETS):
        vendor = plugin_search.vendor_of(item)
        if vendor is None or (params["vendors"] is not None and vendor.name not in params["vendors"]):
            continue
        namespace = item["metadata"]["namespace"]
        if namespace not in pods:
            pods[namespace] = cluster.list(f"/api/v1/namespaces/{namespace}/pods")
        found.append(plugin_search.describe(item, vendor, pods[namespace]))
    return {"plugins": sorted(found, key=lambda entry: (entry["namespace"], entry["name"]))}


def main() -> None:
    module = cluster_module({"vendors": {"type": "list", "elements": "str"}})
    try:
        result = run_cluster_module(module, _work)
    except GpuOpsError as error:
        module.fail_json(msg=error.line())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
