# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA: discovery below a driver root; an environment variable, and device nodes where asked for."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuops_lab.plugin.api import deviceplugin_pb2 as api
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
from gpuops_lab.plugin.vendors import nvidia_config

CDI_KIND = "k8s.device-plugin.nvidia.com/gpu"
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_VOLUME_ROOT = "/var/run/nvidia-container-devices"
STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")


class NvidiaPlugin:
    """NVIDIA's plugin on whole GPUs, shared or not."""

    vendor = "nvidia"
    ends_with_kubelet = False
    removes_sockets = True
    refuses_taken_socket = False
    scan_seconds = 0.0

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], places: Places) -> None:
        self._places = places
        self.config = nvidia_config.load(arguments, environment)
        self.waits_on_error = not self.config.fail_on_init_error

    def _root(self) -> str:
        """Where this process sees the driver: below the mounted driver root, else in its own tree."""
        mounted = self.config.container_driver_root
        return mounted if os.path.isdir(f"{mounted}/proc") else self._places.root

    def discover(self) -> list[Resource]:
        """One resource with all GPUs, each as often as sharing says."""
        root = self._root()
        if not os.path.isfile(f"{root}/proc/driver/nvidia/version"):
            raise PluginExit(
                "Incompatible strategy detected auto: no NVIDIA driver below "
                f"{root}; if this is a GPU node, did you install the driver and mount its root?"
            )
        devices = self._gpus(root)
        if not devices:
            logging.info("No devices found. Waiting indefinitely.")
            return []
        sharing = self.config.sharing
        if sharing:
            devices = [replace(device, id=f"{device.id}::{copy}") for device in devices for copy in range(sharing.replicas)]
        kind = "gpu.shared" if sharing and sharing.rename else "gpu"
        if any(strategy.startswith("cdi") for strategy in self.config.device_list_strategy):
            self._write_cdi(devices)
        return [Resource(f"nvidia.com/{kind}", f"nvidia-{kind}.sock", tuple(devices))]

    def _gpus(self, root: str) -> list[Device]:
        folder = f"{root}/proc/driver/nvidia/gpus"
        found: list[Device] = []
        for address in entries(folder):
            pairs = (line.partition(":") for line in read_text(folder, address, "information").splitlines())
            facts = {key.strip(): value.strip() for key, _, value in pairs}
            gpu, minor = facts.get("GPU UUID", ""), facts.get("Device Minor", "")
            if not gpu or not minor.isdigit():
                logging.warning("GPU %s has no UUID or minor number in %s, it is left out", address, folder)
                continue
            numa = read_text(root, "sys/bus/pci/devices", address, "numa_node")
            node = (int(numa),) if numa.isdigit() else None
            index = str(len(found))
            name = index if self.config.device_id_strategy == "index" else gpu
            found.append(Device(gpu, (f"/dev/nvidia{minor}",), gpu, node, names=(name,)))
        return found

    def allocate(self, resource: Resource, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """What the device list strategies and device specs of the command line give."""
        devices = self._requested(resource, ids)
        names = list(dict.fromkeys(_announced(device) for device in devices))
        answer = api.ContainerAllocateResponse()
        strategies = self.config.device_list_strategy
        if "envvar" in strategies:
            answer.envs["NVIDIA_VISIBLE_DEVICES"] = ",".join(names)
        if "volume-mounts" in strategies:
            answer.envs["NVIDIA_VISIBLE_DEVICES"] = _VOLUME_ROOT
            answer.mounts.extend(api.Mount(host_path="/dev/null", container_path=f"{_VOLUME_ROOT}/{name}") for name in names)
        if "cdi-annotations" in strategies:
            key = f"{self.config.cdi_annotation_prefix}nvidia-device-plugin_{uuid.uuid4()}"
            answer.annotations[key] = ",".join(f"{CDI_KIND}={name}" for name in names)
        if "cdi-cri" in strategies:
            answer.cdi_devices.extend(api.CDIDevice(name=f"{CDI_KIND}={name}") for name in names)
        for name, switched_on in self.config.extras:
            if switched_on:
                answer.envs[name] = "enabled"
        if self.config.pass_device_specs:
            answer.devices.extend(self._specs(devices))
        return answer

    def _requested(self, resource: Resource, ids: Sequence[str]) -> list[Device]:
        """The devices with these ids, if the vendor's plugin would hand them out together."""
        sharing = self.config.sharing
        problem = f'invalid allocation request for "{resource.name}": invalid request: '
        devices = []
        for device_id in ids:
            device = find(resource, device_id)
            if device is None:
                raise AllocationError(f"{problem}unknown device: {device_id}")
            devices.append(device)
        if sharing and sharing.fail_greater_than_one and len(ids) > 1:
            raise AllocationError(f"{problem}maximum request size for shared resources is 1; found {len(ids)}")
        return devices

    def _specs(self, devices: Sequence[Device]) -> list[api.DeviceSpec]:
        nodes = dict.fromkeys(node for device in devices for node in device.nodes)
        nodes.update(dict.fromkeys(self._control_nodes()))
        return [device_spec(os.path.normpath(f"{self.config.dev_root}/{node}"), node) for node in nodes]

    def _control_nodes(self) -> list[str]:
        folders = {self._places.dev, os.path.normpath(f"{self._root()}/dev")}
        return [node for node in CONTROL_NODES if any(os.path.exists(f"{folder}/{node[5:]}") for folder in folders)]

    def _write_cdi(self, devices: Sequence[Device]) -> None:
        seen = {_announced(device): device for device in devices}
        common = [{"path": node, "hostPath": node} for node in self._control_nodes()]
        edits = [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": node, "hostPath": node} for node in device.nodes]}}
            for name, device in seen.items()
        ]
        document = {"cdiVersion": "0.5.0", "kind": CDI_KIND, "devices": edits, "containerEdits": {"deviceNodes": common}}
        try:
            os.makedirs(self._places.cdi, exist_ok=True)
            with open(f"{self._places.cdi}/k8s.device-plugin.nvidia.com-gpu.json", "w", encoding="utf-8") as stream:
                json.dump(document, stream, indent=1)
        except OSError as error:
            raise PluginExit(f"cannot write CDI specification in {self._places.cdi}: {error.strerror}") from error

    def prefer(self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int) -> list[str]:
        """In order; of shared GPUs the least used first (distributed), or the most used (packed)."""
        chosen = [device for device in resource.devices if device.id in required]
        rest = [device for device in resource.devices if device.id in available and device.id not in required]
        if len(chosen) + len(rest) < size:
            raise AllocationError(
                "error getting list of preferred allocation devices: not enough available devices to satisfy allocation"
            )
        packed = self.config.shared_policy == "packed"
        total = {device.unit: sum(other.unit == device.unit for other in resource.devices) for device in rest}
        while len(chosen) < size and rest:
            free = {unit: sum(device.unit == unit for device in rest) for unit in total}
            best = min(rest, key=lambda device: (total[device.unit] - free[device.unit]) * (-1 if packed else 1))
            chosen.append(best)
            rest.remove(best)
        return [device.id for device in chosen[:size]]


def _announced(device: Device) -> str:
    """What the container is told: the id without a replica number, or the index."""
    return device.names[0] if device.names and not device.names[0].startswith("GPU-") else device.id.split("::")[0]
