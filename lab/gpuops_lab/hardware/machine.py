# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a simulated machine consists of.

Ids are lower-case hex without C(0x); memory is in bytes; PCI addresses are C(0000:19:00.0).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PciFunction:
    """One PCI function, a GPU or not."""

    address: str
    vendor: str
    device: str
    class_code: str  # base class, sub class and interface: 030200
    subsystem_vendor: str = "0000"
    subsystem_device: str = "0000"
    revision: str = "00"
    driver: str = ""  # bound kernel driver, "" for none
    numa_node: int = 0
    parent: str = ""  # address of the bridge above it, "" on a root bus
    virtual_functions: int | None = None  # sriov_totalvfs; None without SR-IOV
    link_speed: str = ""  # "32.0 GT/s PCIe"
    link_width: int = 0

    @property
    def bus(self) -> int:
        """Number of its bus."""
        return int(self.address[5:7], 16)

    @property
    def is_bridge(self) -> bool:
        """Whether buses may lie below it."""
        return self.class_code.startswith("0604")


@dataclass(frozen=True)
class DrmDevice:
    """One DRM device: a card node and, where it can compute, a render node."""

    card: int
    render: int | None
    parent: str  # PCI address, or the name of a platform device such as amdgpu_xcp_0


@dataclass(frozen=True)
class Partition:
    """A compute partition beside the GPU function itself, as AMD's driver makes them."""

    name: str  # amdgpu_xcp_0
    drm: DrmDevice


@dataclass(frozen=True)
class Gpu:
    """One physical GPU."""

    vendor: str  # nvidia, amd, intel
    product: str  # as the driver names it
    function: PciFunction
    driver_version: str
    memory_bytes: int
    uuid: str  # NVIDIA's GPU-…; AMD's unique id in hex; "" for Intel
    minor: int  # number of /dev/nvidia<minor>; position among the GPUs of its vendor
    architecture: str = ""
    compute_units: int = 0
    drm: DrmDevice | None = None
    compute_partition: str = ""  # SPX, CPX; "" where the GPU cannot be partitioned
    memory_partition: str = ""
    partitions: tuple[Partition, ...] = ()

    @property
    def address(self) -> str:
        """Its PCI address."""
        return self.function.address


@dataclass(frozen=True)
class Machine:
    """A whole machine."""

    name: str
    description: str
    product: str  # DMI product name
    functions: tuple[PciFunction, ...]  # all of them, sorted by address
    gpus: tuple[Gpu, ...]  # sorted by address
    displays: tuple[DrmDevice, ...] = ()  # DRM devices that are no GPU, such as a BMC's
    modules: tuple[tuple[str, str], ...] = ()  # loaded kernel modules with their versions, "" for in-tree

    def of(self, vendor: str) -> tuple[Gpu, ...]:
        """The machine's GPUs of one vendor."""
        return tuple(gpu for gpu in self.gpus if gpu.vendor == vendor)
