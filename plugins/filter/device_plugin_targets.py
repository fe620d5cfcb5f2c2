# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter device_plugin_targets: which vendor's device plugin goes to which nodes, with which settings."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import device_plugin
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS

DOCUMENTATION = r"""
name: device_plugin_targets
short_description: Says which vendor's device plugin goes to which nodes
version_added: 1.0.0
author:
  - gpuops.k8s contributors (@gpuops)
description:
  - Turns the GPU facts of a play's hosts into one entry for each vendor that has a usable GPU on at least one of them.
  - Fails with one line when a vendor or a setting is unknown, or when a wanted vendor has no usable GPU on any host.
positional: hosts
options:
  _input:
    description: The magic variable C(hostvars).
    type: dict
    required: true
  hosts:
    description: Names of the hosts, usually the magic variable C(ansible_play_hosts_all).
    type: list
    elements: str
    required: true
  vendors:
    description: Vendors that are wanted; all that are found when empty.
    type: list
    elements: str
  settings:
    description: Vendor to the settings of its plugin, options of the module M(gpuops.k8s.device_plugin).
    type: dict
"""

EXAMPLES = r"""
- name: Install the plugins
  gpuops.k8s.device_plugin:
    vendor: "{{ item.vendor }}"
    nodes: "{{ item.nodes }}"
  loop: "{{ hostvars | gpuops.k8s.device_plugin_targets(ansible_play_hosts_all) }}"
"""

RETURN = r"""
_value:
  description:
    - One dictionary for each vendor, with C(vendor), C(nodes), C(settings), and C(complete), which is whether the facts of
      all hosts are known.
  type: list
  elements: dict
"""

SETTINGS = (
    "version", "image", "image_pull_policy", "image_pull_secrets", "node_selector", "tolerations", "options", "foreign",
    "wait", "wait_timeout",
)  # fmt: skip


def device_plugin_targets(
    hostvars: Mapping[str, Any],
    hosts: Sequence[str],
    vendors: Optional[Sequence[str]] = None,
    settings: Optional[Mapping[str, Any]] = None,
) -> List[Dict[str, Any]]:
    """One entry a vendor: vendor, nodes (sorted names), settings, complete."""
    given = dict(settings or {})
    _check_names(vendors or [], given)
    found: Dict[str, List[str]] = {}
    complete = True
    for host in hosts:
        variables = hostvars[host]
        facts = (variables.get("ansible_facts") or {}).get("gpu")
        if facts is None:
            complete = False
            continue
        name = str(variables.get("gpu_node_name") or host)
        for vendor in sorted({gpu["vendor"] for gpu in facts["gpus"] if gpu["resource"]}):
            found.setdefault(vendor, []).append(name)
    missing = [vendor for vendor in vendors or [] if vendor not in found]
    if missing:
        raise AnsibleFilterError(
            f"Choosing nodes for the device plugin of {', '.join(missing)}: no host of the play has a usable GPU of it. "
            "Look at ansible_facts.gpu.problems of the hosts, or correct gpu_vendors."
        )
    return [
        {"vendor": vendor, "nodes": sorted(found[vendor]), "settings": given.get(vendor) or {}, "complete": complete}
        for vendor in VENDORS
        if vendor in found and (not vendors or vendor in vendors)
    ]


def _check_names(vendors: Sequence[str], settings: Mapping[str, Any]) -> None:
    for variable, names in (("gpu_vendors", vendors), ("gpu_device_plugins", settings)):
        unknown = sorted(set(names) - set(VENDORS))
        if unknown:
            raise AnsibleFilterError(
                f"Reading {variable}: unknown vendor {', '.join(unknown)}. Known vendors: {', '.join(VENDORS)}."
            )
    for vendor, values in settings.items():
        unknown = sorted(set(values or {}) - set(SETTINGS))
        if unknown:
            raise AnsibleFilterError(
                f"Reading gpu_device_plugins.{vendor}: unknown setting {', '.join(unknown)}. "
                f"Known settings: {', '.join(SETTINGS)}."
            )
        try:
            # A mistake in one vendor's settings must show before another vendor's plugin is changed.
            device_plugin.wanted({**(values or {}), "namespace": "gpuops-system"}, VENDORS[vendor])
        except GpuOpsError as error:
            raise AnsibleFilterError(f"Reading gpu_device_plugins.{vendor}: {error.line()}") from None


class FilterModule:
    """The filter of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"device_plugin_targets": device_plugin_targets}
