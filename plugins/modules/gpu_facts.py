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
    whose vendor is known. Audio, USB and serial functions of a card are no GPUs, nor are the displays of baseboard
    controllers and virtual machines, which are listed in RV(ansible_facts.gpu.displays).
  - RV(ansible_facts.gpu.gpus), RV(ansible_facts.gpu.count) and RV(ansible_facts.gpu.resources) are of the GPUs that
    Kubernetes is to offer. Those that it is not are in RV(ansible_facts.gpu.excluded_gpus), each with the reason.
    They are GPUs and virtual functions bound to vfio-pci, GPUs whose virtual functions are used in their place, and
    integrated GPUs. An idle virtual function is not listed.
  - It never fails on what it finds. A GPU without a driver, held by nouveau, or without its device node
    gets that as its RV(ansible_facts.gpu.gpus[].state), and the problem is listed with a hint.
  - Runs without privileges too, with fewer facts. What could not be read is in RV(ansible_facts.gpu.left_out).
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
      - Seconds that a vendor's tool may take. V(0) runs no tool. All tools run side by side.
    type: int
    default: 10
  include_integrated:
    description:
      - Whether Kubernetes is to offer integrated GPUs too, those that are part of the processor.
      - The device plugins of AMD and Intel offer them like any other GPU if their drivers hold them.
    type: bool
    default: false
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

- name: Count the processor's own GPU too
  gpuops.k8s.gpu_facts:
    include_integrated: true

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
          description: One entry for each GPU that Kubernetes is to offer, in the order of PCI addresses.
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
            memory_source:
              description: Where it is known from. It is driver, nominal (of the model), shared (with the node) or unknown.
              returned: always
              type: str
              sample: driver
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
            capability:
              description: What programs are built for. A compute capability, a gfx target or a generation of Xe.
              returned: always
              type: str
              sample: "9.0"
            integrated: {description: Whether it is part of the processor., returned: always, type: bool}
            virtual_function:
              description: Whether it is a virtual function of another function of the node.
              returned: always
              type: bool
            physical_function: {description: PCI address of that other function., returned: always, type: str}
            virtual_functions: {description: Virtual functions that it is divided into., returned: always, type: int}
            excluded:
              description: Why it is not to be offered. It is vfio, virtual_function, divided or integrated.
              returned: always
              type: str
            kernel_module_flavor:
              description: Flavor of its kernel module, open or proprietary; empty where there is but one.
              returned: always
              type: str
              sample: open
            mig_mode: {description: Enabled or disabled; empty if unknown., returned: always, type: str, sample: disabled}
            mig_devices:
              description: Its hardware instances, each with uuid and profile.
              returned: always
              type: list
              elements: dict
              sample: [{"uuid": "MIG-c7a8cf65-0b8a-5a15-a6a8-6b1b8f0f7a2b", "profile": "1g.10gb"}]
            compute_partition_mode: {description: Mode of its compute units., returned: always, type: str, sample: CPX}
            memory_partition_mode: {description: Mode of its memory., returned: always, type: str, sample: NPS4}
            ecc: {description: Enabled or disabled; empty if unknown., returned: always, type: str, sample: enabled}
            peers:
              description: GPUs that it reaches over NVLink or XGMI, each with pci_address, link and count of links.
              returned: always
              type: list
              elements: dict
              sample: [{"pci_address": "0000:3b:00.0", "link": "nvlink", "count": 18}]
        excluded_gpus:
          description: GPUs that Kubernetes is not to offer, with the same keys and the reason in excluded.
          returned: always
          type: list
          elements: dict
        vendors: {description: Vendors with at least one GPU to offer., returned: always, type: list, elements: str}
        count: {description: Number of GPUs to offer., returned: always, type: int}
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
        drivers:
          description:
            - Vendor to its driver, with module, version, userspace_version, flavor, and mismatch, which says whether kernel
              module and user space are of different versions and must not be.
          returned: always
          type: dict
          sample:
            nvidia:
              module: nvidia
              version: 580.95.05
              userspace_version: 580.95.05
              mismatch: false
              flavor: open
        displays:
          description:
            - Display controllers that are no GPUs, with pci_address, vendor_id, device_id, model, driver, and kind,
              which is bmc, virtual or other.
          returned: always
          type: list
          elements: dict
        secure_boot: {description: Whether Secure Boot is on; null if that cannot be read., returned: always, type: bool}
        reboot_pending: {description: Whether the node waits for a reboot., returned: always, type: bool}
        left_out:
          description: What could not be read, with subject (a path or a tool) and reason.
          returned: always
          type: list
          elements: dict
          sample: [{"subject": "/dev/kmsg", "reason": "Operation not permitted"}]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuops.k8s.plugins.module_utils._node.collect import TOOL_TIMEOUT, collect
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "vendors": {"type": "list", "elements": "str"},
            "tool_timeout": {"type": "int", "default": TOOL_TIMEOUT},
            "include_integrated": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wanted = module.params["vendors"]
    unknown = [name for name in wanted or [] if name not in VENDORS]
    if unknown:
        module.fail_json(msg=f"Looking for GPUs of {', '.join(unknown)}: unknown vendor. Known vendors: {', '.join(VENDORS)}.")
    chosen = [vendor for name, vendor in VENDORS.items() if wanted is None or name in wanted]
    facts = collect(
        module.params["root"],
        chosen,
        tool_timeout=module.params["tool_timeout"],
        include_integrated=module.params["include_integrated"],
    )
    module.exit_json(changed=False, ansible_facts={"gpu": facts})


if __name__ == "__main__":
    main()
