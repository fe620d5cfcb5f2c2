# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Intel: discovery through DRM cards; device nodes, by-path mounts and CDI names."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence

from gpuops_lab.plugin import flags
from gpuops_lab.plugin.api import deviceplugin_pb2 as api
from gpuops_lab.plugin.flags import Flag
from gpuops_lab.plugin.model import (
    AllocationError,
    Device,
    Places,
    PluginExit,
    Resource,
    device_spec,
    entries,
    find,
    read_text,
)

DOMAIN = "gpu.intel.com"
CDI_KIND = "intel.cdi.k8s.io/gpu"
_FLAGS = flags.logging_flags() | {
    "prefix": Flag(""),
    "shared-dev-num": Flag(1),
    "allocation-policy": Flag("none"),
    "enable-monitoring": Flag(False),
    "monitoring-mode": Flag("single"),
    "bypath": Flag("single"),
    "allow-ids": Flag(""),
    "deny-ids": Flag(""),
    "health-management": Flag(False),
    "temp-limit": Flag(100),
    "gpu-temp-limit": Flag(100),
    "memory-temp-limit": Flag(100),
    "xpumd-endpoint": Flag(""),
    "wsl": Flag(False),
}
_CHOICES = {
    "allocation-policy": ("none", "balanced", "packed"),
    "monitoring-mode": ("single", "split"),
    "bypath": ("single", "none", "all"),
}


class IntelPlugin:
    """Intel's GPU plugin."""

    vendor = "intel"
    ends_with_kubelet = False
    removes_sockets = False
    waits_on_error = False
    refuses_taken_socket = True
    scan_seconds = 5.0

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], places: Places) -> None:
        values, _ = flags.parse(arguments, _FLAGS, environment)
        self._values = values
        self._places = places
        self._prefix = str(values["prefix"])
        self._shared = int(values["shared-dev-num"])
        _check(values)

    def discover(self) -> list[Resource]:
        """One resource for each kernel driver, none without cards; writes the CDI file on the way."""
        drivers: dict[str, list[Device]] = {}
        for card, driver, device in self._cards():
            for position in range(self._shared):
                copy = Device(f"{card}-{position}", device.nodes, card, device.numa, True, device.mounts, device.names)
                drivers.setdefault(driver, []).append(copy)
        resources = [_resource(driver, devices) for driver, devices in sorted(drivers.items())]
        if drivers:
            self._write_cdi([device for devices in drivers.values() for device in devices])
        if drivers and self._values["enable-monitoring"]:
            resources += self._monitoring(drivers)
        return resources

    def _cards(self) -> list[tuple[str, str, Device]]:
        """Card, driver and device of every Intel card that has a node."""
        drm = f"{self._prefix}{self._places.sys}/class/drm"
        dri = f"{self._prefix}{self._places.dev}/dri"
        found = []
        cards = [name for name in entries(drm) if re.fullmatch(r"card\d+", name)]
        for card in sorted(cards, key=lambda name: int(name[4:])):
            folder = f"{drm}/{card}/device"
            if read_text(folder, "vendor") != "0x8086" or not os.path.isdir(f"{folder}/drm"):
                continue
            if not self._allowed(read_text(folder, "device")):
                continue
            if int(read_text(folder, "sriov_numvfs") or 0) > 0:
                continue  # its virtual functions count instead
            names = [name for name in entries(folder, "drm") if re.fullmatch(r"(card|renderD)\d+", name)]
            nodes = [name for name in names if os.path.exists(f"{dri}/{name}")]
            if not nodes:
                continue
            driver = os.path.basename(os.path.realpath(f"{folder}/driver")) if os.path.exists(f"{folder}/driver") else "i915"
            address = os.path.basename(os.path.realpath(folder))
            host = f"{self._prefix}/dev/dri"
            device = Device(card, tuple(f"{host}/{name}" for name in nodes), card, (), True, self._by_path(address), (card,))
            found.append((card, driver, device))
        return found

    def _allowed(self, device_id: str) -> bool:
        allow, deny = (str(self._values[name]).split(",") if self._values[name] else [] for name in ("allow-ids", "deny-ids"))
        return device_id not in deny and (not allow or device_id in allow)

    def _by_path(self, address: str) -> tuple[str, ...]:
        mode = self._values["bypath"]
        if mode == "none":
            return ()
        if mode == "all":
            return (f"{self._prefix}/dev/dri/by-path",)
        folder = f"{self._prefix}{self._places.dev}/dri/by-path"
        return tuple(f"{self._prefix}/dev/dri/by-path/{name}" for name in entries(folder) if name.startswith(f"pci-{address}"))

    def _monitoring(self, drivers: dict[str, list[Device]]) -> list[Resource]:
        def everything(devices: list[Device]) -> Device:
            nodes = dict.fromkeys(node for device in devices for node in device.nodes)
            return Device("all", tuple(nodes), "all", ())

        if self._values["monitoring-mode"] == "split":
            return [_resource(f"{driver}_monitoring", [everything(devices)]) for driver, devices in sorted(drivers.items())]
        return [_resource("monitoring", [everything([device for devices in drivers.values() for device in devices])])]

    def _write_cdi(self, devices: list[Device]) -> None:
        """Without this file a runtime cannot resolve the names that Allocate gives."""
        cards = {device.unit: device for device in devices}
        edits = [{"name": card, "containerEdits": _edits(device)} for card, device in sorted(cards.items())]
        text = json.dumps({"cdiVersion": "0.5.0", "kind": CDI_KIND, "devices": edits}, indent=1)
        path = f"{self._places.cdi}/intel.cdi.k8s.io-gpu.json"
        if read_text(path) == text:
            return
        try:
            os.makedirs(self._places.cdi, exist_ok=True)
            with open(f"{path}.tmp", "w", encoding="utf-8") as stream:
                stream.write(text)
            os.replace(f"{path}.tmp", path)
        except OSError as error:
            logging.warning("cannot write %s: %s; CDI names will not resolve", path, error.strerror)

    def allocate(self, resource: Resource, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """Device nodes, by-path mounts and CDI names of known, healthy devices."""
        answer = api.ContainerAllocateResponse()
        nodes: dict[str, None] = {}
        mounts: dict[str, None] = {}
        names: dict[str, None] = {}
        for device_id in ids:
            device = find(resource, device_id)
            if device is None:
                raise AllocationError(f"Invalid allocation request with non-existing device {device_id}")
            if not device.healthy:
                raise AllocationError(f"Invalid allocation request with unhealthy device {device_id}")
            nodes.update(dict.fromkeys(device.nodes))
            mounts.update(dict.fromkeys(device.mounts))
            names.update(dict.fromkeys(device.names))
        answer.devices.extend(device_spec(node) for node in nodes)
        answer.mounts.extend(api.Mount(container_path=path, host_path=path, read_only=True) for path in mounts)
        answer.cdi_devices.extend(api.CDIDevice(name=f"{CDI_KIND}={name}") for name in names)
        return answer

    def prefer(self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int) -> list[str]:
        """As many cards as possible (none), the card with most left each time (balanced), or in order (packed)."""
        if size > len(available):
            raise AllocationError(
                f"AllocationSize ({size}) is greater than the number of available device IDs ({len(available)})"
            )
        policy = self._values["allocation-policy"]
        if policy == "packed":
            return sorted(available)[:size]
        cards: dict[str, list[str]] = {}
        for device_id in sorted(available) if policy == "balanced" else available:
            cards.setdefault(device_id.split("-")[0], []).append(device_id)
        if policy == "balanced":
            return [_most_left(cards).pop(0) for _ in range(size)]
        firsts = [ids[0] for ids in cards.values()]
        return (firsts + [device_id for device_id in available if device_id not in firsts])[:size]


def _most_left(cards: dict[str, list[str]]) -> list[str]:
    """The ids of the card that has most of them, the first by name where several do."""
    return max((cards[name] for name in sorted(cards)), key=len)


def _edits(device: Device) -> dict[str, list[dict[str, object]]]:
    """What a runtime does to a container for one card."""
    edits: dict[str, list[dict[str, object]]] = {
        "deviceNodes": [{"path": node, "hostPath": node, "permissions": "rw"} for node in device.nodes]
    }
    if device.mounts:
        options = {"type": "none", "options": ["bind", "ro"]}
        edits["mounts"] = [{"hostPath": path, "containerPath": path, **options} for path in device.mounts]
    return edits


def _check(values: Mapping[str, flags.Value]) -> None:
    if int(values["shared-dev-num"]) < 1:
        raise PluginExit("The number of containers sharing the same GPU must be greater than zero")
    for name, choices in _CHOICES.items():
        if values[name] not in choices:
            raise PluginExit(f"invalid value {values[name]!r} for -{name}, the valid values are {', '.join(choices)}")
    if values["allow-ids"] and values["deny-ids"]:
        raise PluginExit("-allow-ids and -deny-ids exclude each other")
    for name in ("allow-ids", "deny-ids"):
        for part in str(values[name]).split(",") if values[name] else ():
            if not re.fullmatch(r"0x[0-9a-f]{4}", part):
                raise PluginExit(f"-{name} takes ids such as 0x56c0 in lower-case hex, found {part!r}")
    if values["wsl"]:
        raise PluginExit("-wsl is not simulated")


def _resource(kind: str, devices: list[Device]) -> Resource:
    return Resource(f"{DOMAIN}/{kind}", f"{DOMAIN}-{kind}.sock", tuple(devices))
