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
    """One PCI device id: its name, its nominal memory in bytes and its architecture."""

    name: str
    memory_bytes: int
    architecture: str


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
    required_nodes: Tuple[str, ...] = ()  # control nodes without which no program works
    stale_resource_prefix: str = ""  # resources below it belong to this vendor
    reading: Reading = Reading()
    user_space: UserSpace = field(default_factory=UserSpace)
    incompatibilities: Tuple[Incompatibility, ...] = ()


GIB = 1024**3
