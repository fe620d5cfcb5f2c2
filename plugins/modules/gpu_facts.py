# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module gpu_facts: the GPUs of a node as facts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_facts
short_description: Finds the GPUs of a node and says what they should add to the cluster
version_added: 1.0.0
description:
  - Reads the PCI functions of the node in sysfs, the files of the bound drivers and, where installed, the vendor's tool.
  - GPUs are functions of the classes VGA (0300), 3D (0302), other display (0380) and processing accelerator (1200)
    whose vendor is known. Audio and USB functions of a card and the display of a baseboard controller do not count.
  - It never fails on what it finds. A GPU without a driver, held by nouveau or vfio-pci, or without its device node
    gets that as its RV(ansible_facts.gpu.gpus[].state), and the problem is listed with a hint.
  - Needs nothing but Python 3.9 on the node. Changes nothing.
options:
  root:
    description:
      - Folder below which C(/sys), C(/proc) and C(/dev) are read. Vendor tools run only with V(/).
    type: path
    default: /
  vendors:
    description:
      - Vendors to look for; all when left out.
    type: list
    elements: str
  tool_timeout:
    description:
      - Seconds that a vendor's tool may take. V(0) runs no tool.
    type: int
    default: 15
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.facts
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  facts:
    support: full
  platform:
    support: full
    platforms: linux
author:
  - gpuops.k8s contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Find the GPUs
  gpuops.k8s.gpu_facts:

- name: Show what stands in the way
  ansible.builtin.debug:
    var: ansible_facts.gpu.problems

- name: Look for NVIDIA alone, without running nvidia-smi
  gpuops.k8s.gpu_facts:
    vendors: [nvidia]
    tool_timeout: 0
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: always
  type: dict
  contains:
    gpu:
      description: What the node holds.
      returned: always
      type: dict
      contains:
        gpus:
          description: One entry for each physical GPU, in the order of PCI addresses.
          returned: always
          type: list
          elements: dict
          contains:
            vendor: {description: Name of the vendor., returned: always, type: str, sample: nvidia}
            pci_address: {description: PCI address., returned: always, type: str, sample: "0000:0c:00.0"}
            vendor_id: {description: PCI vendor id., returned: always, type: str, sample: 10de}
            device_id: {description: PCI device id., returned: always, type: str, sample: "2330"}
            model: {description: Name of the model., returned: always, type: str, sample: H100 SXM5 80GB}
            memory_bytes: {description: Memory in bytes., returned: always, type: int, sample: 85899345920}
            memory_source: {description: "Where it is known from: driver, nominal or unknown.", returned: always, type: str}
            architecture: {description: Architecture of the model., returned: always, type: str, sample: hopper}
            driver: {description: Bound kernel driver., returned: always, type: str, sample: nvidia}
            driver_version: {description: Its version., returned: always, type: str, sample: 580.95.05}
            numa_node: {description: NUMA node; -1 if the platform has none., returned: always, type: int}
            index: {description: Position among the GPUs of this vendor., returned: always, type: int}
            uuid: {description: The vendor's own id., returned: always, type: str}
            card: {description: Name of the DRM card., returned: always, type: str, sample: card0}
            device_numbers: {description: Device node to its major and minor number in hex., returned: always, type: dict}
            device_nodes: {description: Device nodes of this GPU alone., returned: always, type: list, elements: str}
            render_node: {description: Its render node., returned: always, type: str, sample: /dev/dri/renderD128}
            partitions: {description: Partitions beside the GPU itself., returned: always, type: list, elements: str}
            partition_nodes: {description: Device nodes of each partition., returned: always, type: dict}
            state:
              description: One of ready, no_driver, vfio, nouveau, wrong_driver, no_device_node.
              returned: always
              type: str
              sample: ready
            ready: {description: Whether the state is ready., returned: always, type: bool}
            resource: {description: The resource that it adds to., returned: always, type: str, sample: nvidia.com/gpu}
        vendors: {description: Vendors with at least one GPU., returned: always, type: list, elements: str}
        count: {description: Number of physical GPUs., returned: always, type: int}
        resources:
          description: Extended resource to the quantity that the node should offer.
          returned: always
          type: dict
          sample: {"nvidia.com/gpu": 4}
        runtime: {description: Vendor to whether the kernel side is ready for containers., returned: always, type: dict}
        problems:
          description: What a person should know, each with code, subject, message and hint.
          returned: always
          type: list
          elements: dict
        sources: {description: What each part was read from., returned: always, type: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuops.k8s.plugins.module_utils._node.collect import collect
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "vendors": {"type": "list", "elements": "str"},
            "tool_timeout": {"type": "int", "default": 15},
        },
        supports_check_mode=True,
    )
    wanted = module.params["vendors"]
    unknown = [name for name in wanted or [] if name not in VENDORS]
    if unknown:
        module.fail_json(msg=f"Looking for GPUs of {', '.join(unknown)}: unknown vendor. Known vendors: {', '.join(VENDORS)}.")
    chosen = [vendor for name, vendor in VENDORS.items() if wanted is None or name in wanted]
    facts = collect(module.params["root"], chosen, tool_timeout=module.params["tool_timeout"])
    module.exit_json(changed=False, ansible_facts={"gpu": facts})


if __name__ == "__main__":
    main()
