# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DRM devices as sysfs and /dev show them."""

from __future__ import annotations

from gpuops_lab.hardware import pci
from gpuops_lab.hardware.machine import DrmDevice, Machine
from gpuops_lab.hardware.writer import TreeWriter

MAJOR = 226


def devices(machine: Machine) -> list[DrmDevice]:
    """All DRM devices of a machine, partitions and displays too, in the order of their card numbers."""
    found = list(machine.displays)
    for gpu in machine.gpus:
        found += [gpu.drm] if gpu.drm else []
        found += [partition.drm for partition in gpu.partitions]
    return sorted(found, key=lambda device: device.card)


def node_names(device: DrmDevice) -> dict[str, int]:
    """Names of a device's nodes with their minor numbers."""
    names = {f"card{device.card}": device.card}
    if device.render is not None:
        names[f"renderD{device.render}"] = device.render
    return names


def parent_folder(machine: Machine, device: DrmDevice) -> str:
    """Folder of the PCI function or platform device that a DRM device belongs to."""
    is_pci = ":" in device.parent
    return pci.device_folder(machine, device.parent) if is_pci else f"devices/platform/{device.parent}"


def write(machine: Machine, writer: TreeWriter) -> None:
    """Write drm folders below their devices, class/drm and the numbers below dev/char."""
    found = devices(machine)
    if found:
        writer.file("class/drm/version", "drm 1.1.0 20060810")
    for device in found:
        parent = parent_folder(machine, device)
        if ":" not in device.parent:
            writer.opaque(parent)
            writer.file(f"{parent}/modalias", f"platform:{device.parent}")
        for name, minor in node_names(device).items():
            folder = f"{parent}/drm/{name}"
            writer.files(folder, {"dev": f"{MAJOR}:{minor}", "uevent": _uevent(name, minor)})
            writer.link(f"{folder}/device", parent)
            writer.link(f"{folder}/subsystem", "class/drm")
            writer.link(f"class/drm/{name}", folder)
            writer.link(f"dev/char/{MAJOR}:{minor}", folder)
    _write_memory(machine, writer)


def _uevent(name: str, minor: int) -> str:
    return f"MAJOR={MAJOR}\nMINOR={minor}\nDEVNAME=dri/{name}\nDEVTYPE=drm_minor"


def _write_memory(machine: Machine, writer: TreeWriter) -> None:
    """Local memory where Intel's drivers say it."""
    for gpu in machine.of("intel"):
        if gpu.drm is None:
            continue
        folder = pci.device_folder(machine, gpu.address)
        if gpu.function.driver == "i915":
            writer.file(f"{folder}/drm/card{gpu.drm.card}/lmem_total_bytes", gpu.memory_bytes)
            writer.file(f"{folder}/drm/card{gpu.drm.card}/gt/gt0/id", 0)
        else:
            writer.file(f"{folder}/tile0/physical_vram_size_bytes", f"0x{gpu.memory_bytes:x}")
            writer.file(f"{folder}/tile0/gt0/freq0/act_freq", 0)


def device_paths(machine: Machine) -> list[str]:
    """Paths of all DRM nodes."""
    return [f"/dev/dri/{name}" for device in devices(machine) for name in node_names(device)]


def by_path_links(machine: Machine) -> dict[str, str]:
    """Links below /dev/dri/by-path with their targets, for the devices that lie on PCI."""
    links = {}
    for device in devices(machine):
        if ":" not in device.parent:
            continue
        links[f"/dev/dri/by-path/pci-{device.parent}-card"] = f"../card{device.card}"
        if device.render is not None:
            links[f"/dev/dri/by-path/pci-{device.parent}-render"] = f"../renderD{device.render}"
    return links
