# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records that travel between the node, the API and the verdict.

All are plain dictionaries once they leave a module, because Ansible carries them as JSON;
the classes here give their keys, units and sources. Memory is in bytes everywhere.
"""

from __future__ import annotations

from typing import Dict, List, Optional, TypedDict


class Peer(TypedDict):
    """Another GPU of the node that a GPU reaches without the PCI bus."""

    pci_address: str
    link: str  # nvlink, xgmi
    count: int  # links of that kind between the two


class MigDevice(TypedDict):
    """One hardware instance of a GPU. Both values are "" where only the kernel's files tell that it is there."""

    uuid: str  # MIG-…
    profile: str  # 1g.10gb


class GpuRecord(TypedDict):
    """One GPU of a node, or a virtual function that stands for one, as C(gpu_facts) found it."""

    vendor: str  # registry name: nvidia, amd, intel
    pci_address: str  # domain:bus:device.function, lower-case hex, 0000:0c:00.0
    vendor_id: str  # four lower-case hex digits, 10de
    device_id: str  # four lower-case hex digits, 2330
    model: str  # "H100 80GB SXM"; "unknown 10de:2330" if neither catalogue nor pci.ids has it
    memory_bytes: Optional[int]
    memory_source: str  # driver | nominal | unknown
    architecture: str  # hopper, gfx942, xe-hpc; "" if unknown
    driver: str  # bound kernel driver, "" if none
    driver_version: str  # "" if unknown
    numa_node: int  # -1 if the platform has none
    index: int  # position among the GPUs of this vendor in PCI order
    uuid: str  # vendor's own id (GPU-…), "" where the vendor has none
    card: str  # DRM card name, card0; "" without DRM
    device_nodes: List[str]  # nodes that belong to this GPU alone, /dev/nvidia0
    device_numbers: Dict[str, str]  # device node to its number, major:minor in hex as stat(1) prints it
    render_node: str  # /dev/dri/renderD128; "" without one
    partitions: List[str]  # device-plugin ids of partitions beside the GPU itself, amdgpu_xcp_0
    partition_nodes: Dict[str, List[str]]  # partition id to its own device nodes
    state: str  # ready | no_driver | vfio | nouveau | wrong_driver | no_device_node
    ready: bool  # state == "ready"
    resource: str  # extended resource that it should add to; "" where it should not
    capability: str  # what programs are built for: 9.0, gfx942, xe-hpc; "" if unknown
    integrated: bool  # part of the processor
    virtual_function: bool  # a virtual function of another function of this node
    physical_function: str  # PCI address of that one, "" if this is none
    virtual_functions: int  # how many it is divided into now
    excluded: str  # why Kubernetes is not to offer it: vfio | virtual_function | divided | integrated; "" if it is
    kernel_module_flavor: str  # open | proprietary; "" where there is but one
    mig_mode: str  # enabled | disabled; "" if unknown or not to be had
    mig_devices: List[MigDevice]
    compute_partition_mode: str  # SPX, CPX, …; "" where it cannot be partitioned
    memory_partition_mode: str  # NPS1, NPS4, …
    ecc: str  # enabled | disabled; "" if unknown
    peers: List[Peer]


class Problem(TypedDict):
    """Something a person should know; never fatal by itself."""

    code: str  # driver_missing, nouveau_bound, vfio_bound, tool_broken, …
    subject: str  # PCI address, tool or path
    message: str
    hint: str


def problem(code: str, subject: str, message: str, hint: str) -> Problem:
    """A problem out of its four parts."""
    return {"code": code, "subject": subject, "message": message, "hint": hint}


class DriverFacts(TypedDict):
    """The driver of one vendor."""

    module: str  # kernel module that holds the first GPU, "" if none is loaded
    version: str  # "" for a module of the kernel itself
    userspace_version: str  # of the libraries on the node, "" if none were found
    mismatch: bool  # whether the two are of different versions and must not be
    flavor: str  # open | proprietary; "" where there is but one


class Display(TypedDict):
    """A display controller that is no GPU."""

    pci_address: str
    vendor_id: str
    device_id: str
    model: str
    driver: str
    kind: str  # bmc | virtual | other


class LeftOut(TypedDict):
    """Something that could not be read, and why."""

    subject: str  # path or tool
    reason: str


class NodeFacts(TypedDict):
    """C(ansible_facts['gpu']): what one node holds."""

    gpus: List[GpuRecord]  # those that Kubernetes is to offer
    excluded_gpus: List[GpuRecord]  # those that it is not, with the reason
    vendors: List[str]  # sorted names of vendors with at least one GPU that it is to offer
    count: int  # len(gpus)
    resources: Dict[str, int]  # extended resource to the quantity to expect
    runtime: Dict[str, bool]  # vendor to "kernel side ready for containers"
    problems: List[Problem]
    sources: Dict[str, str]  # what each part was read from
    drivers: Dict[str, DriverFacts]  # vendor to its driver
    displays: List[Display]
    secure_boot: Optional[bool]  # None if unknown
    reboot_pending: bool
    left_out: List[LeftOut]


class DeviceAllocation(TypedDict):
    """Devices that the kubelet gave to one container for one resource."""

    pod_uid: str  # "" where the source does not say (PodResources)
    pod: str  # "" where the source does not say (checkpoint)
    namespace: str
    container: str
    resource: str
    device_ids: List[str]


class KubeletLedger(TypedDict):
    """C(ansible_facts['kubelet_devices']): the device manager's own books on one node."""

    source: str  # podresources | checkpoint | none
    sockets: List[str]  # plugin socket files in the device-plugins folder, without kubelet.sock
    kubelet_socket: bool
    registered: Dict[str, List[str]]  # resource to sorted device ids
    allocations: List[DeviceAllocation]
    problems: List[Problem]
