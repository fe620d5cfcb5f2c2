# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module cdi_spec: the CDI specification of a vendor's GPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cdi_spec
short_description: Writes the CDI specification of a vendor's GPUs on a node
version_added: 1.0.0
description:
  - The Container Device Interface (CDI) gives GPUs names under which container runtimes find their device nodes
    and libraries. This module makes the file with these names, checks it, compares it with the one that is there,
    and replaces that in one step.
  - The version of the specification is the oldest that has what the file uses, so that old runtimes can read it.
  - Only GPUs that are ready are in it. With none the task fails, because containers could not start.
  - Specifications of others are reported in RV(specs) and never touched. One of the same kind in the same folder makes
    runtimes refuse both, so the task fails then.
  - Needs root and nothing but Python 3.9 on the node.
options:
  vendor:
    description:
      - Vendor of the GPUs, for example V(nvidia), V(amd) or V(intel).
    type: str
    required: true
  state:
    description:
      - V(absent) removes the file at O(path) and nothing else.
    type: str
    choices: [present, absent]
    default: present
  gpus:
    description:
      - GPUs as the module M(gpuops.k8s.gpu_facts) reports them in C(ansible_facts.gpu.gpus).
      - Those of other vendors are skipped.
      - Read from the node when left out.
    type: list
    elements: dict
  path:
    description:
      - The file. Its folder should be one that the container runtime reads.
      - C(/etc/cdi/gpuops-VENDOR.json) when left out.
    type: path
  naming:
    description:
      - By what each GPU is named; every one gives it a name. What a GPU does not have is skipped.
      - All GPUs together are the device V(all). A partition of an AMD GPU is a device of its own.
    type: list
    elements: str
    choices: [index, uuid, pci_address]
    default: [index, uuid, pci_address]
  groups:
    description:
      - Ids of groups of the node that containers join, so that users other than root can open the device nodes.
      - Makes the file need version 0.7.0 of the specification. Only for specifications that this module makes itself.
    type: list
    elements: int
    default: []
  generator:
    description:
      - V(program) takes the vendor's program, C(nvidia-ctk) for NVIDIA, and adds the names that are missing.
      - V(builtin) makes device nodes from facts. Containers of NVIDIA get no driver libraries then.
      - V(auto) takes the program where it is installed. If it is and fails, the task fails.
    type: str
    choices: [auto, builtin, program]
    default: auto
  disabled_hooks:
    description:
      - Hooks that the vendor's program is to leave out.
    type: list
    elements: str
    default: []
  timeout:
    description:
      - Seconds that the vendor's program may take.
    type: int
    default: 60
  root:
    description:
      - Folder below which C(/dev) is read and the file is written.
        Vendor programs run only with V(/); elsewhere V(auto) means V(builtin).
    type: path
    default: /
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  platform:
    support: full
    platforms: linux
seealso:
  - module: gpuops.k8s.gpu_facts
author:
  - gpuops.k8s contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Find the GPUs
  gpuops.k8s.gpu_facts:

- name: Name the NVIDIA GPUs for the container runtime
  gpuops.k8s.cdi_spec:
    vendor: nvidia
    gpus: "{{ ansible_facts.gpu.gpus }}"

- name: Let the containers of AMD GPUs join the group render
  gpuops.k8s.cdi_spec:
    vendor: amd
    naming: [pci_address]
    groups: [105]

- name: Take the names away again
  gpuops.k8s.cdi_spec:
    vendor: amd
    state: absent
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
  sample: /etc/cdi/gpuops-nvidia.json
kind:
  description: The kind under which the names are.
  returned: always
  type: str
  sample: nvidia.com/gpu
devices:
  description: The names, without the kind.
  returned: always
  type: list
  elements: str
  sample: ["0", "0000:01:00.0", "GPU-8166da94-fb80-e6e4-34db-c4d5d7cce2a1", "all"]
version:
  description: Version of the specification that a runtime must be able to read; empty without a file.
  returned: always
  type: str
  sample: 0.5.0
generator:
  description: What made the file, V(builtin) or the name of the vendor's program; empty with O(state=absent).
  returned: always
  type: str
  sample: nvidia-ctk
left_out:
  description: GPUs of the vendor that are not in the file, with subject (PCI address) and reason.
  returned: always
  type: list
  elements: dict
specs:
  description:
    - Specifications of others in C(/etc/cdi) and C(/var/run/cdi), with path, kind, state and reason.
    - RV(ignore:state) is C(good), C(malformed), C(stale) (names a device node that is not there), C(clash) (same kind, same
      folder) or C(shadow) (same kind, other folder). YAML files are searched for their kind and device nodes, not parsed.
  returned: always
  type: list
  elements: dict
  sample: [{"path": "/var/run/cdi/old.json", "kind": "example.com/gpu", "state": "stale",
    "reason": "it names /dev/example0, which is not there"}]
"""

import json
from typing import Any, Dict, Mapping, Sequence, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuops.k8s.plugins.module_utils._core import cdi
from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._node import cdi_specs, writing
from ansible_collections.gpuops.k8s.plugins.module_utils._node.collect import collect
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS

Params = Dict[str, Any]


def _gpus(params: Params, vendor: Vendor) -> Sequence[Mapping[str, Any]]:
    if params["gpus"] is not None:
        for gpu in params["gpus"]:
            if not {"vendor", "pci_address", "device_nodes", "ready"} <= gpu.keys():
                raise GpuOpsError(
                    "Reading gpus: an entry is no GPU record", "Pass ansible_facts.gpu.gpus of gpuops.k8s.gpu_facts."
                )
        return params["gpus"]
    return collect(params["root"], [vendor])["gpus"]


def _wanted(params: Params, root: Root, vendor: Vendor) -> Tuple[str, Dict[str, Any]]:
    """Text of the file, "" for none, and what the result says of it."""
    if params["state"] == "absent":
        return "", {"devices": [], "version": "", "generator": "", "left_out": []}
    generator = params["generator"]
    if generator == "auto" and not root.is_live:
        generator = "builtin"
    request = cdi_specs.Request(
        gpus=_gpus(params, vendor),
        naming=[name for name in cdi.NAMINGS if name in params["naming"]],
        groups=params["groups"],
        generator=generator,
        disabled_hooks=params["disabled_hooks"],
        timeout=params["timeout"],
    )
    made = cdi_specs.make(root, vendor, request)
    wrong = cdi.problems(made.spec)
    if wrong:
        raise GpuOpsError(
            f"Making a CDI specification for {vendor.title}: runtimes would refuse it: {'; '.join(wrong)}",
            "Report this as a bug.",
        )
    devices = [device["name"] for device in made.spec["devices"]]
    said = {"devices": devices, "version": made.spec["cdiVersion"], "generator": made.generator, "left_out": made.left_out}
    return cdi_specs.text_of(made.spec), said


def _same(before: str, after: str) -> bool:
    """Whether two files say the same; their layout does not matter."""
    try:
        return bool(before) == bool(after) and (not after or json.loads(before) == json.loads(after))
    except ValueError:
        return False


def _work(params: Params, check_mode: bool) -> Dict[str, Any]:
    if params["vendor"] not in VENDORS:
        raise GpuOpsError(f"Looking for GPUs of {params['vendor']}: unknown vendor", f"Known vendors: {', '.join(VENDORS)}.")
    vendor = VENDORS[params["vendor"]]
    root = Root(params["root"])
    path = params["path"] or f"{cdi_specs.FOLDERS[0]}/gpuops-{vendor.name}.json"
    kind = vendor.user_space.cdi.kind if vendor.user_space.cdi else ""
    after, said = _wanted(params, root, vendor)
    specs = cdi_specs.survey(root, path, kind)
    clash = next((spec for spec in specs if spec["state"] == "clash"), None)
    if clash and after:
        raise GpuOpsError(
            f"Writing {path}: {clash['path']} has the kind {kind} too, and runtimes refuse names that are there twice",
            "Remove that file, or set path to it if this module is to own it.",
        )
    place = root.join(path)
    writing.refuse_link(place)
    before = root.read_bytes(path).decode("utf-8", "replace")
    changed = not _same(before, after)
    if changed and not check_mode:
        writing.replace(place, after) if after else writing.remove(place)
    diff = {"before": before, "after": after if changed else before, "before_header": path, "after_header": path}
    return {"changed": changed, "path": path, "kind": kind, "specs": specs, "diff": diff, **said}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "vendor": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "gpus": {"type": "list", "elements": "dict"},
            "path": {"type": "path"},
            "naming": {"type": "list", "elements": "str", "choices": list(cdi.NAMINGS), "default": list(cdi.NAMINGS)},
            "groups": {"type": "list", "elements": "int", "default": []},
            "generator": {"type": "str", "choices": ["auto", "builtin", "program"], "default": "auto"},
            "disabled_hooks": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 60},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    try:
        result = _work(module.params, module.check_mode)
    except GpuOpsError as error:
        module.fail_json(msg=error.line())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
