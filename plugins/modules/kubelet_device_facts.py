# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module kubelet_device_facts: the device manager's books as facts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kubelet_device_facts
short_description: Reads which devices the kubelet has registered and given to pods
version_added: 1.0.0
description:
  - Asks the kubelet's PodResources API (version 1) over its local socket, and reads the device manager's checkpoint.
  - Allocations come from the API, or from the checkpoint when the API does not answer;
    RV(ansible_facts.kubelet_devices.source) says which.
  - What cannot be read becomes a problem with a hint, never a failure of the task.
  - Needs root and nothing but Python 3.9 on the node. Changes nothing.
options:
  kubelet_root:
    description:
      - The kubelet's folder.
    type: path
    default: /var/lib/kubelet
  resources:
    description:
      - Names of extended resources to report; all when left out.
    type: list
    elements: str
  timeout:
    description:
      - Seconds that one call of the API may take.
    type: int
    default: 10
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
- name: Read what the kubelet has given out
  gpuops.k8s.kubelet_device_facts:
    resources: [nvidia.com/gpu, amd.com/gpu]

- name: Show it
  ansible.builtin.debug:
    var: ansible_facts.kubelet_devices.allocations
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: always
  type: dict
  contains:
    kubelet_devices:
      description: The device manager's books.
      returned: always
      type: dict
      contains:
        source: {description: "Where the allocations are from: podresources, checkpoint or none.", returned: always, type: str}
        sockets: {description: Socket files of device plugins., returned: always, type: list, elements: str}
        kubelet_socket: {description: Whether the kubelet's registration socket is there., returned: always, type: bool}
        registered:
          description: Extended resource to the ids of its healthy devices.
          returned: always
          type: dict
          sample: {"gpu.intel.com/i915": ["card0-0", "card1-0"]}
        allocations:
          description:
            - One entry for each container and resource, with pod_uid, pod, namespace, container, resource and device_ids.
            - The API does not tell pod_uid, the checkpoint does not tell pod and namespace; what is not told is empty.
          returned: always
          type: list
          elements: dict
        problems:
          description: What could not be read, each with code, subject, message and hint.
          returned: always
          type: list
          elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuops.k8s.plugins.module_utils._node.kubelet import collect


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "kubelet_root": {"type": "path", "default": "/var/lib/kubelet"},
            "resources": {"type": "list", "elements": "str"},
            "timeout": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    params = module.params
    ledger = collect(params["kubelet_root"], params["resources"], params["timeout"])
    module.exit_json(changed=False, ansible_facts={"kubelet_devices": ledger})


if __name__ == "__main__":
    main()
