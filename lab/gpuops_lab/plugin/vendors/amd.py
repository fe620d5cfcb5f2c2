# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD: discovery through the driver's sysfs folder and the compute topology, device nodes and nothing else."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence

from gpuops_lab.plugin import flags
from gpuops_lab.plugin.api import deviceplugin_pb2 as api
from gpuops_lab.plugin.flags import Flag
from gpuops_lab.plugin.model import Device, Places, PluginExit, Resource, device_spec, entries, find, read_text

DOMAIN = "amd.com"
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_FLAGS = flags.logging_flags() | {"pulse": Flag(0), "resource_naming_strategy": Flag("single")}
_SAME_UNIT, _SAME_SOCKET, _FAR = 10, 40, 60


class AmdPlugin:
    """AMD's plugin."""

    vendor = "amd"
    ends_with_kubelet = True
    removes_sockets = False
    waits_on_error = False
    refuses_taken_socket = False

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], places: Places) -> None:
        values, _ = flags.parse(arguments, _FLAGS, environment)
        self._places = places
        self._naming = str(values["resource_naming_strategy"])
        self.scan_seconds = float(values["pulse"])
        if self._naming not in ("single", "mixed"):
            raise PluginExit(f"Resource naming strategy {self._naming!r} is unknown, use single or mixed")

    def discover(self) -> list[Resource]:
        """One resource, or one for each partition mode; none without the compute driver."""
        if not os.path.isdir(f"{self._places.sys}/class/kfd"):
            logging.info("no compute driver: /sys/class/kfd is missing, nothing to offer")
            return []
        if not os.path.isdir(f"{self._places.sys}/module/amdgpu/drivers"):
            raise PluginExit("amdgpu driver unavailable: /sys/module/amdgpu/drivers is missing")
        modes: dict[str, list[Device]] = {}
        for mode, device in self._devices():
            modes.setdefault(mode, []).append(device)
        if self._naming == "single":
            if len(modes) > 1:
                raise PluginExit(
                    f"GPUs have different partition modes ({', '.join(sorted(modes))}), which resource naming strategy "
                    "single cannot name"
                )
            return [_resource("gpu", [device for devices in modes.values() for device in devices])] if modes else []
        return [_resource(mode or "gpu", devices) for mode, devices in sorted(modes.items())]

    def _devices(self) -> list[tuple[str, Device]]:
        found: list[tuple[str, Device]] = []
        sys = self._places.sys
        folder = f"{sys}/module/amdgpu/drivers/pci:amdgpu"
        modes, sockets = {}, {}
        for address in (name for name in entries(folder) if _ADDRESS.fullmatch(name)):
            numa = read_text(folder, address, "numa_node")
            if not re.fullmatch(r"-?\d+", numa):
                continue  # as the vendor's plugin: without a NUMA node the GPU does not count
            compute = read_text(folder, address, "current_compute_partition")
            memory = read_text(folder, address, "current_memory_partition")
            modes[address] = f"{compute}_{memory}".lower() if compute and memory else ""
            sockets[address] = (int(numa),)
            nodes = _drm_nodes(f"{folder}/{address}/drm")
            found.append((modes[address], Device(address, nodes, address, sockets[address])))
        owners = self._owners()
        for name in sorted(_partitions(sys), key=_natural):
            nodes = _drm_nodes(f"{sys}/devices/platform/{name}/drm")
            owner = owners.get(nodes[-1].rpartition("renderD")[2]) if nodes else None
            if owner in modes:
                found.append((modes[owner], Device(name, nodes, owner, sockets[owner])))
        return found

    def _owners(self) -> dict[str, str]:
        """Render minor of each compute node to the PCI address of its GPU."""
        folder = f"{self._places.sys}/class/kfd/kfd/topology/nodes"
        owners = {}
        for node in entries(folder):
            lines = (line.split() for line in read_text(folder, node, "properties").splitlines())
            values = {pair[0]: pair[1] for pair in lines if len(pair) == 2}
            if values.get("cpu_cores_count") != "0" or not int(values.get("simd_count", 0)):
                continue
            location, domain = int(values.get("location_id", 0)), int(values.get("domain", 0))
            address = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
            owners[values.get("drm_render_minor", "")] = address
        return owners

    def allocate(self, resource: Resource, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """The node that all GPUs share and each device's own; an unknown id adds nothing and is no error."""
        nodes = ["/dev/kfd"]
        for device_id in ids:
            device = find(resource, device_id)
            nodes += [node for node in device.nodes if node not in nodes] if device else []
        return api.ContainerAllocateResponse(devices=[device_spec(node) for node in nodes])

    def prefer(self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int) -> list[str]:
        """Devices that lie nearest to each other: same GPU, then same socket."""
        order = [device for device in resource.devices if device.id in set(available) | set(required)]
        chosen = [device for device in order if device.id in required]
        while len(chosen) < size and len(chosen) < len(order):
            rest = [device for device in order if device not in chosen]
            chosen.append(min(rest, key=lambda device: sum(_distance(device, other) for other in chosen)))
        return [device.id for device in chosen[:size]]


def _resource(kind: str, devices: list[Device]) -> Resource:
    return Resource(f"{DOMAIN}/{kind}", f"{DOMAIN}_{kind}", tuple(devices))


def _partitions(sys: str) -> list[str]:
    return [name for name in entries(sys, "devices/platform") if re.fullmatch(r"amdgpu_xcp_\d+", name)]


def _natural(name: str) -> tuple[str, int]:
    head, _, number = name.rpartition("_")
    return head, int(number)


def _drm_nodes(folder: str) -> tuple[str, ...]:
    names = entries(folder)
    cards = [name for name in names if re.fullmatch(r"card\d+", name)]
    renders = [name for name in names if re.fullmatch(r"renderD\d+", name)]
    return tuple(f"/dev/dri/{name}" for name in (*cards[:1], *renders[:1]))


def _distance(first: Device, second: Device) -> int:
    if first.unit == second.unit:
        return _SAME_UNIT
    return _SAME_SOCKET if first.numa == second.numa else _FAR
