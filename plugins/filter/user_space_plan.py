# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter user_space_plan: what a vendor's GPUs need of packages on a node of this distribution."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional

from ansible.errors import AnsibleFilterError

from ansible_collections.gpuops.k8s.plugins.module_utils._core import packages
from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS

DOCUMENTATION = r"""
name: user_space_plan
short_description: Says which packages a vendor's GPUs need on a node, and from which repository
version_added: 1.0.0
author:
  - gpuops.k8s contributors (@gpuops)
description:
  - Chooses from the vendor's data by the distribution of the node.
  - Fails with one line when the vendor is unknown, or the source has nothing for the distribution.
positional: vendor
options:
  _input:
    description: Ansible's facts of the node's distribution and architecture.
    type: dict
    required: true
  vendor:
    description: Name of the vendor.
    type: str
    required: true
  source:
    description: Where the packages come from; the first that has packages for the distribution when empty.
    type: str
    choices: ["", distribution, vendor, none]
    default: ""
  version:
    description: Version of the packages, instead of the one in the vendor's data.
    type: str
  repository:
    description: Parts of the repository that differ, for a mirror; C(url), C(key), C(suite), C(components).
    type: dict
"""

EXAMPLES = r"""
- name: Show what would be installed
  ansible.builtin.debug:
    msg: "{{ ansible_facts | gpuops.k8s.user_space_plan('nvidia', source='vendor') }}"
"""

RETURN = r"""
_value:
  description:
    - A dictionary with C(source), C(manager) (apt, dnf or zypper), C(names), C(packages) (names with pins), C(version),
      C(repository) (name, url, key, suite, components; none for the distribution's own), C(smoke_tests), C(handlers),
      C(groups), C(driver) (packages, modules, blacklist) and C(guidance).
  type: dict
"""

SOURCES = ("", "distribution", "vendor", "none")


def user_space_plan(
    facts: Mapping[str, Any], vendor: str, source: str = "", version: str = "", repository: Optional[Mapping[str, Any]] = None
) -> Dict[str, Any]:
    """The plan of _core.packages, and what else the vendor's record says of a node's user space."""
    if vendor not in VENDORS:
        raise AnsibleFilterError(f"Choosing packages: unknown vendor {vendor}. Known vendors: {', '.join(VENDORS)}.")
    if source not in SOURCES:
        raise AnsibleFilterError(f"Choosing {vendor} packages: unknown source {source}. Use one of: {', '.join(SOURCES[1:])}.")
    record = VENDORS[vendor]
    data = record.user_space
    try:
        chosen = packages.plan(record.title, data.sets, source, facts, version or "", repository)
    except GpuOpsError as error:
        raise AnsibleFilterError(error.line()) from None
    driver = data.driver
    return {
        **chosen,
        "smoke_tests": [{"command": list(test.command), "pattern": test.pattern} for test in data.smoke_tests],
        "handlers": [{"name": handler.name, "path": handler.path} for handler in data.handlers],
        "groups": list(data.groups),
        "guidance": list(data.guidance),
        "driver": {
            "packages": list(packages.choose(driver.packages, facts) or ()) if driver else [],
            "modules": list(driver.modules) if driver else [],
            "blacklist": list(driver.blacklist) if driver else [],
        },
    }


class FilterModule:
    """The filter of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"user_space_plan": user_space_plan}
