# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter runtime_handlers: which handlers the container runtime of a node needs for its GPUs."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping

from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS

DOCUMENTATION = r"""
name: runtime_handlers
short_description: Says which handlers the container runtime of a node needs for its GPUs
version_added: 1.0.0
author:
  - gpuops.k8s contributors (@gpuops)
description:
  - Turns the GPU facts of a node into the handlers that the vendors of its usable GPUs bring. AMD and Intel need none.
options:
  _input:
    description: The facts C(gpu) of M(gpuops.k8s.gpu_facts).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the handlers
  ansible.builtin.debug:
    msg: "{{ ansible_facts.gpu | gpuops.k8s.runtime_handlers }}"
"""

RETURN = r"""
_value:
  description: One dictionary for each handler, with C(name) and C(path) of its program.
  type: list
  elements: dict
"""


def runtime_handlers(facts: Mapping[str, Any]) -> List[Dict[str, str]]:
    """Handlers of the vendors that have a GPU with a resource, in the registry's order."""
    usable = {gpu["vendor"] for gpu in facts["gpus"] if gpu["resource"]}
    records = [vendor for vendor in VENDORS.values() if vendor.name in usable]
    return [{"name": handler.name, "path": handler.path} for vendor in records for handler in vendor.user_space.handlers]


class FilterModule:
    """The filter of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"runtime_handlers": runtime_handlers}
