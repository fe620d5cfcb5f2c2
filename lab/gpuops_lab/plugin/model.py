# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plugin offers, and how it says that it cannot."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuops_lab.plugin.api import deviceplugin_pb2 as api


@dataclass(frozen=True)
class Device:
    """One device as a kubelet sees it, with what a container gets for it."""

    id: str
    nodes: tuple[str, ...]  # host paths of its device nodes
    unit: str  # key of the physical GPU that it belongs to
    numa: tuple[int, ...] | None = None  # None: no topology at all; (): an empty one
    healthy: bool = True
    mounts: tuple[str, ...] = ()  # host paths mounted read-only at the same place
    names: tuple[str, ...] = ()  # what the vendor calls it: UUID and index, or card


@dataclass(frozen=True)
class Resource:
    """One extended resource with its socket and devices."""

    name: str
    endpoint: str  # file name of the socket
    devices: tuple[Device, ...]


class AllocationError(Exception):
    """A request that the vendor's plugin refuses; the text goes to the kubelet."""


class PluginExit(Exception):  # noqa: N818 - the vendor's plugin ends so, often rightly
    """The plugin ends by itself, as the vendor's does in this case."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True)
class Places:
    """Folders that a plugin reads and writes; tests put them elsewhere."""

    device_plugins: str = "/var/lib/kubelet/device-plugins"
    sys: str = "/sys"
    dev: str = "/dev"
    cdi: str = "/var/run/cdi"
    root: str = "/"

    @staticmethod
    def of(environment: Mapping[str, str]) -> Places:
        """Take places from GPUOPS_DEVICE_PLUGIN_DIR, GPUOPS_SYS_ROOT, GPUOPS_DEV_ROOT, GPUOPS_CDI_DIR and GPUOPS_ROOT."""
        default = Places()
        return Places(
            device_plugins=environment.get("GPUOPS_DEVICE_PLUGIN_DIR", default.device_plugins),
            sys=environment.get("GPUOPS_SYS_ROOT", default.sys),
            dev=environment.get("GPUOPS_DEV_ROOT", default.dev),
            cdi=environment.get("GPUOPS_CDI_DIR", default.cdi),
            root=environment.get("GPUOPS_ROOT", default.root),
        )


class Plugin(Protocol):
    """A vendor's behaviour."""

    vendor: str
    ends_with_kubelet: bool  # the process ends when a kubelet's stream breaks
    removes_sockets: bool  # a clean stop takes the socket files away
    refuses_taken_socket: bool  # a second instance does not start
    waits_on_error: bool  # a failed first discovery does not end the process
    scan_seconds: float  # how often hardware is read again, 0 for never

    def discover(self) -> list[Resource]:
        """Read the hardware.

        Raises:
            PluginExit: The vendor's plugin would end here.
        """

    def allocate(self, resource: Resource, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """Answer for one container.

        Raises:
            AllocationError: The vendor's plugin would refuse.
        """

    def prefer(self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int) -> list[str]:
        """Choose ids as the vendor's plugin would.

        Raises:
            AllocationError: The vendor's plugin would refuse.
        """


def read_text(*parts: str) -> str:
    """Text of a file without its line end, empty if it cannot be read."""
    try:
        with open(os.path.join(*parts), encoding="utf-8") as stream:
            return stream.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def entries(*parts: str) -> list[str]:
    """Sorted names in a folder, none if it cannot be read."""
    try:
        return sorted(os.listdir(os.path.join(*parts)))
    except OSError:
        return []


def device_spec(host_path: str, container_path: str = "") -> api.DeviceSpec:
    """A device node that a container may read and write."""
    return api.DeviceSpec(container_path=container_path or host_path, host_path=host_path, permissions="rw")


def find(resource: Resource, device_id: str) -> Device | None:
    """The device with this id."""
    return next((device for device in resource.devices if device.id == device_id), None)
