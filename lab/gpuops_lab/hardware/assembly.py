# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a catalogue file's compact data to a whole machine: bridges, DRM numbers, ids."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any

from gpuops_lab.hardware.machine import DrmDevice, Gpu, Machine, Partition, PciFunction

MIB = 1024**2
FIRST_RENDER = 128
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ID = re.compile(r"[0-9a-f]{4}")
_TOP_KEYS = {"description", "product", "gpus", "functions"}
_GROUP_KEYS = {
    "vendor", "product", "device", "class", "subsystem", "revision", "memory_mib", "driver", "driver_version", "at",
    "architecture", "compute_units", "drm", "partitions", "virtual_functions", "link_speed", "link_width", "uuid",
}  # fmt: skip
_VENDOR_IDS = {"nvidia": "10de", "amd": "1002", "intel": "8086"}
# Root ports of a common server platform.
_ROOT_PORT = ("8086", "2030", "060400", "pcieport")
# Modules that come with a driver, each with the modules that use it.
_MODULES = {
    "nvidia": ("nvidia", "nvidia_uvm", "nvidia_modeset"),
    "amdgpu": ("amdgpu", "amdxcp"),
    "i915": ("i915",),
    "xe": ("xe",),
    "ast": ("ast",),
}


def assemble(name: str, document: dict[str, Any], chassis: dict[str, Any], serial: str = "") -> Machine:
    """Make a machine from the data of its file and of its chassis.

    Raises:
        ValueError: A key, id or address is wrong; KeyError, TypeError: a key is missing or has the wrong type.
    """
    unknown = sorted(document.keys() - _TOP_KEYS)
    if unknown:
        raise ValueError(f"unknown keys {', '.join(unknown)}")
    plain = [_function(entry) for entry in (*chassis["functions"], *(document.get("functions") or ()))]
    gpus: list[Gpu] = []
    for group in document.get("gpus") or ():
        gpus += _group(f"{name} {serial}".strip(), group)
    gpus.sort(key=lambda gpu: gpu.address)
    gpus = _numbered(gpus)
    gpus, displays = _with_drm(gpus, [f for f in plain if f.driver == "ast"])
    functions = _with_bridges([*plain, *(gpu.function for gpu in gpus)])
    gpus = [replace(gpu, function=next(f for f in functions if f.address == gpu.address)) for gpu in gpus]
    return Machine(
        name=name,
        description=str(document["description"]),
        product=str(document.get("product") or chassis["product"]),
        functions=tuple(functions),
        gpus=tuple(gpus),
        displays=tuple(displays),
        modules=_modules(gpus, plain),
    )


def _function(entry: dict[str, Any]) -> PciFunction:
    vendor, _, device = str(entry["id"]).partition(":")
    subsystem_vendor, _, subsystem_device = str(entry.get("subsystem", "0000:0000")).partition(":")
    function = PciFunction(
        address=str(entry["at"]),
        vendor=vendor,
        device=device,
        class_code=_class_code(entry["class"]),
        subsystem_vendor=subsystem_vendor,
        subsystem_device=subsystem_device,
        revision=str(entry.get("revision", "00")),
        driver=str(entry.get("driver", "")),
        numa_node=int(entry.get("numa", 0)),
        virtual_functions=entry.get("virtual_functions"),
    )
    return _checked(function)


def _checked(function: PciFunction) -> PciFunction:
    if not _ADDRESS.fullmatch(function.address):
        raise ValueError(f"PCI address {function.address!r} is not domain:bus:device.function in lower-case hex")
    for text in (function.vendor, function.device, function.subsystem_vendor, function.subsystem_device):
        if not _ID.fullmatch(text):
            raise ValueError(f"{function.address}: PCI id {text!r} is not four lower-case hex digits in quotes")
    return function


def _class_code(text: Any) -> str:
    code = str(text)
    if not re.fullmatch(r"[0-9a-f]{4}([0-9a-f]{2})?", code):
        raise ValueError(f"PCI class {text!r} is not four or six lower-case hex digits in quotes")
    return code.ljust(6, "0")


def _group(seed: str, group: dict[str, Any]) -> list[Gpu]:
    """GPUs of one model."""
    unknown = sorted(group.keys() - _GROUP_KEYS)
    if unknown:
        raise ValueError(f"GPU group has unknown keys {', '.join(unknown)}")
    vendor = group["vendor"]
    if vendor not in _VENDOR_IDS:
        raise ValueError(f"unknown GPU vendor {vendor!r}, use {', '.join(_VENDOR_IDS)}")
    if not group["at"]:
        raise ValueError("a GPU group has no addresses")
    return [_gpu(seed, group, str(address), int(numa)) for address, numa in group["at"].items()]


def _gpu(seed: str, group: dict[str, Any], address: str, numa: int) -> Gpu:
    subsystem_vendor, _, subsystem_device = str(group.get("subsystem", "0000:0000")).partition(":")
    function = PciFunction(
        address=address,
        vendor=_VENDOR_IDS[group["vendor"]],
        device=str(group["device"]),
        class_code=_class_code(group["class"]),
        subsystem_vendor=subsystem_vendor,
        subsystem_device=subsystem_device,
        revision=str(group.get("revision", "00")),
        driver=str(group.get("driver", "")),
        numa_node=numa,
        virtual_functions=group.get("virtual_functions"),
        link_speed=str(group.get("link_speed", "16.0 GT/s PCIe")),
        link_width=int(group.get("link_width", 16)),
    )
    partitions = group.get("partitions") or {}
    return Gpu(
        vendor=group["vendor"],
        product=str(group["product"]),
        function=_checked(function),
        driver_version=str(group.get("driver_version", "")),
        memory_bytes=int(group["memory_mib"]) * MIB,
        uuid=_uuid(group["vendor"], seed, address),
        minor=0,
        architecture=str(group.get("architecture", "")),
        compute_units=int(group.get("compute_units", 0)),
        # Only marks that it has one; the numbers come later, when all devices are known.
        drm=DrmDevice(0, None, address) if group.get("drm", group["vendor"] != "nvidia") and function.driver else None,
        compute_partition=str(partitions.get("compute", "")),
        memory_partition=str(partitions.get("memory", "")),
        partitions=tuple(Partition("", DrmDevice(0, None, "")) for _ in range(int(partitions.get("count", 1)) - 1)),
    )


def _uuid(vendor: str, seed: str, address: str) -> str:
    """The same id for the same GPU of the same machine, always."""
    digest = hashlib.sha256(f"{seed} {address}".encode()).hexdigest()
    if vendor == "nvidia":
        return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
    return digest[:16] if vendor == "amd" else ""


def _numbered(gpus: list[Gpu]) -> list[Gpu]:
    counters: dict[str, int] = {}
    numbered = []
    for gpu in gpus:
        minor = counters.get(gpu.vendor, 0)
        counters[gpu.vendor] = minor + 1
        numbered.append(replace(gpu, minor=minor))
    return numbered


def _with_drm(gpus: list[Gpu], display_functions: list[PciFunction]) -> tuple[list[Gpu], list[DrmDevice]]:
    """Give DRM numbers as the kernel does: displays of the board first, then GPUs, then their partitions."""
    card, render, partition = 0, FIRST_RENDER, 0
    displays = []
    for function in display_functions:
        displays.append(DrmDevice(card, None, function.address))
        card += 1
    numbered = []
    for gpu in gpus:
        if gpu.drm is not None:
            gpu = replace(gpu, drm=DrmDevice(card, render, gpu.address))
            card, render = card + 1, render + 1
        numbered.append(gpu)
    whole = []
    for gpu in numbered:
        parts = []
        for _ in gpu.partitions:
            name = f"amdgpu_xcp_{partition}"
            parts.append(Partition(name, DrmDevice(card, render, name)))
            card, render, partition = card + 1, render + 1, partition + 1
        whole.append(replace(gpu, partitions=tuple(parts)))
    return whole, displays


def _with_bridges(functions: list[PciFunction]) -> list[PciFunction]:
    """Put a root port above every bus that has none: bus 19 lies below the port 18:01.0."""
    seen = [function.address for function in functions]
    twice = sorted({address for address in seen if seen.count(address) > 1})
    if twice:
        raise ValueError(f"two functions at PCI address {', '.join(twice)}")
    placed = {function.address: function for function in functions}
    for function in functions:
        if function.bus == 0:
            continue
        port = f"{function.address[:5]}{function.bus - 1:02x}:01.0"
        if port not in placed:
            vendor, device, class_code, driver = _ROOT_PORT
            placed[port] = PciFunction(
                port, vendor, device, class_code, "8086", "0000", "04", driver, numa_node=function.numa_node
            )
        if not function.is_bridge:
            placed[function.address] = replace(function, parent=port)
    return [placed[address] for address in sorted(placed)]


def _modules(gpus: list[Gpu], functions: list[PciFunction]) -> tuple[tuple[str, str], ...]:
    versions = {gpu.function.driver: gpu.driver_version for gpu in gpus if gpu.function.driver}
    for function in functions:
        if function.driver in _MODULES:
            versions.setdefault(function.driver, "")
    modules = {}
    for driver, version in versions.items():
        for module in _MODULES.get(driver, (driver,)):
            modules[module] = version if module.split("_")[0] == driver else ""
    if any(gpu.vendor == "nvidia" and gpu.drm is not None for gpu in gpus):
        modules["nvidia_drm"] = versions.get("nvidia", "")
    return tuple(sorted(modules.items()))
