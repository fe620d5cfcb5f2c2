# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter verification_nodes: what the hosts of a play know of themselves, in the form that verification takes."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ansible.errors import AnsibleFilterError

DOCUMENTATION = r"""
name: verification_nodes
short_description: Gathers each host's GPU facts and device books for verification
version_added: 1.0.0
author:
  - gpuops.k8s contributors (@gpuops)
description:
  - Turns C(hostvars) into one entry for each host of a play, also for hosts that have failed or could not be reached,
    because a host that is missing must not go unnoticed.
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
"""

EXAMPLES = r"""
- name: Judge
  gpuops.k8s.gpu_verdict:
    nodes: "{{ hostvars | gpuops.k8s.verification_nodes(ansible_play_hosts_all) }}"
"""

RETURN = r"""
_value:
  description: One dictionary for each host, with host, name, facts, ledger and expected_gpus.
  type: list
  elements: dict
"""


def verification_nodes(hostvars: Mapping[str, Any], hosts: Sequence[str]) -> List[Dict[str, Any]]:
    """One entry a host: host, name (gpu_node_name), facts and ledger (None if not read), expected_gpus."""
    entries = []
    for host in hosts:
        if host not in hostvars:
            raise AnsibleFilterError(f"verification_nodes: {host} is no host of the inventory")
        variables = hostvars[host]
        facts = variables.get("ansible_facts") or {}
        expected = variables.get("gpu_expected_gpus")
        entries.append(
            {
                "host": host,
                "name": variables.get("gpu_node_name") or host,
                "facts": facts.get("gpu"),
                "ledger": facts.get("kubelet_devices"),
                "expected_gpus": _whole_number(host, expected),
            }
        )
    return entries


def _whole_number(host: str, expected: Any) -> Optional[int]:
    if expected is None or expected == "":
        return None
    if isinstance(expected, int) and not isinstance(expected, bool) and expected >= 0:
        return int(expected)
    if isinstance(expected, str) and expected.strip().isdecimal():
        return int(expected)
    raise AnsibleFilterError(f"gpu_expected_gpus of host {host} is {expected!r}; give a whole number from 0 on")


class FilterModule:
    """The collection's filters."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"verification_nodes": verification_nodes}
