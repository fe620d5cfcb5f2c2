# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of what is known of a vendor.

A vendor is one C(Vendor) record: no vendor has code of its own anywhere in the collection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.user_space import Incompatibility, UserSpace


@dataclass(frozen=True)
class Model:
    """One PCI device id: its name, its nominal memory in bytes (0 if it has none of its own) and its architecture."""

    name: str
    memory_bytes: int
    architecture: str
    capability: str = ""  # what programs are built for, "9.0"; "" where the architecture says it
    integrated: bool = False  # part of the processor, so that Kubernetes does not offer it unless asked to


@dataclass(frozen=True)
class HostPath:
    """A folder of the node that the device plugin's pod mounts."""

    name: str
    path: str
    mount_path: str
    read_only: bool = True
    type: str = "Directory"


@dataclass(frozen=True)
class PluginOption:
    """One option of a vendor's device plugin and the argument it becomes.

    C(argument) holds one C({value}), for example C(--mig-strategy={value}).
    """

    argument: str
    type: str = "str"  # str | int | bool
    choices: Tuple[str, ...] = ()
    default: Optional[str] = None  # what the collection passes when the user says nothing; None passes nothing


@dataclass(frozen=True)
class DevicePlugin:
    """How the vendor's device plugin runs as a DaemonSet."""

    name: str  # of the DaemonSet
    image: str  # without tag
    version: str  # default tag
    socket: str  # pattern of the socket's file name, see the vendor's reference
    host_paths: Tuple[HostPath, ...]
    options: Mapping[str, PluginOption]
    arguments: Tuple[str, ...] = ()  # always passed
    privileged: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    tolerations: Tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True)
class KernelMessage:
    """Trouble that the kernel's log tells of a GPU.

    C(pattern) has the group C(address), a PCI address with or without its function, and may have C(detail).
    """

    pattern: str
    title: str  # what stands before the detail, with its space
    hint: str
    ignored: Tuple[str, ...] = ()  # details that are a program's fault and not the GPU's


@dataclass(frozen=True)
class ToolTable:
    """A further question to the vendor's tool, and what its comma separated columns mean: GPU record keys."""

    command: Tuple[str, ...] = ()
    columns: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """Where a node tells more about a GPU than its PCI function does.

    Paths begin at the node's root; C({pci}) is the GPU's PCI address, C({driver}) its driver,
    C({minor}) the number from the information file, C({card}) the DRM card's name.
    Everything is optional; the readers are the same for all vendors.
    """

    information: str = ""  # file of "Key: value" lines, one per GPU
    uuid_key: str = ""
    minor_key: str = ""
    model_key: str = ""
    device_node: str = ""  # the GPU's own device node, by minor
    drm_nodes: bool = False  # programs use the GPU through its DRM card and render node
    uuid_file: str = ""  # in the PCI folder
    memory_files: Tuple[str, ...] = ()  # patterns in the PCI folder, bytes; the first that matches counts, summed
    version_files: Tuple[str, ...] = ()
    partition_folders: str = ""  # pattern; a folder's name is the device plugin's id of the partition
    topology: str = ""  # folder of KFD nodes, which tell the GPU that a partition belongs to
    tool_columns: Tuple[str, ...] = ()  # what the tool prints, comma separated: GPU record keys, memory_mib, or "" to skip
    missing_nodes_hint: str = ""  # what makes the device nodes appear
    tool_details: ToolTable = ToolTable()
    tool_instances: Tuple[str, ...] = ()  # lists hardware instances below the line of their GPU; asked where there are some
    tool_peers: Tuple[str, ...] = ()  # prints the matrix of links between GPUs; asked where there are two or more
    tool_mismatch: str = ""  # what the tool says when driver and library do not fit; group "version" of the library
    mode_files: Mapping[str, str] = field(default_factory=dict)  # GPU record key to file in the PCI folder
    ecc_file: str = ""  # in the PCI folder; its presence says that memory errors are counted
    instances: str = ""  # folder of the hardware instances of a GPU, by minor
    topology_links: Mapping[int, str] = field(default_factory=dict)  # type of a topology's link to the name of the fabric
    flavor_file: str = ""
    flavors: Mapping[str, str] = field(default_factory=dict)  # flavor of the kernel module to pattern in its file, first wins
    library_links: Tuple[str, ...] = ()  # patterns of links whose target's name ends in the version of the user space
    userspace_files: Tuple[str, ...] = ()  # files that hold the version of the user space
    userspace_must_match: bool = False  # whether only the user space of the kernel driver's own version works
    kernel_messages: Tuple[KernelMessage, ...] = ()
    integrated_addresses: Tuple[str, ...] = ()  # patterns of PCI addresses that only integrated GPUs have
    integrated_siblings: Tuple[str, ...] = ()  # classes of functions that only integrated GPUs have beside them


@dataclass(frozen=True)
class Vendor:
    """All that the collection knows of one vendor. Ids are lower-case hex without C(0x)."""

    name: str
    title: str
    pci_vendor_id: str
    models: Mapping[str, Model]  # PCI device id to model
    resources: Mapping[str, str]  # bound kernel driver to extended resource name
    device_id_pattern: str  # regular expression over a plugin's device id; group "key" names the GPU
    device_id_fact: str  # key of the GPU record that the group equals: uuid, pci_address, card
    device_globs: Tuple[str, ...]  # device nodes that belong to single GPUs
    control_nodes: Tuple[str, ...]  # device nodes that all GPUs of the vendor share
    node_label: str  # label that marks nodes with this vendor's GPUs
    plugin: DevicePlugin
    foreign_drivers: Tuple[str, ...] = ()  # drivers that hold the GPU without serving containers
    tool: Tuple[str, ...] = ()  # vendor tool and arguments that prove a working driver
    visible_env: str = ""  # environment variable that names the devices inside a container
    visible_by_runtime: Tuple[str, ...] = ()  # its values where the container runtime gave the devices, so that it names none
    required_nodes: Tuple[str, ...] = ()  # control nodes without which no program works
    stale_resource_prefix: str = ""  # resources below it belong to this vendor
    reading: Reading = Reading()
    user_space: UserSpace = field(default_factory=UserSpace)
    incompatibilities: Tuple[Incompatibility, ...] = ()
    pci_classes: Tuple[str, ...] = ("0300", "0302", "0380", "1200")  # of its GPUs
    offers_divided: bool = True  # whether the device plugin offers a GPU whose virtual functions are enabled and idle


GIB = 1024**3
