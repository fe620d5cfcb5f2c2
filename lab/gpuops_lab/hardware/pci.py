# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine's PCI functions as sysfs shows them."""

from __future__ import annotations

import struct

from gpuops_lab.hardware.machine import Machine, PciFunction
from gpuops_lab.hardware.writer import TreeWriter

CONFIG_BYTES = 256
_CAPABILITIES = 0x40
_PCI_EXPRESS = 0x10
_SPEEDS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}


def device_folder(machine: Machine, address: str) -> str:
    """Where a function lies below /sys, with the bridges above it."""
    parents = {function.address: function.parent for function in machine.functions}
    chain = [address]
    while parents[chain[0]]:
        chain.insert(0, parents[chain[0]])
    return f"devices/pci{chain[0][:7]}/{'/'.join(chain)}"


def write(machine: Machine, writer: TreeWriter) -> None:
    """Write all functions, their drivers and the links of bus/pci."""
    for folder in ("bus/pci/devices", "bus/pci/drivers", "bus/pci/slots"):
        writer.folder(folder)
    writer.file("bus/pci/drivers_autoprobe", 1)
    for root in sorted({function.address[:7] for function in machine.functions if not function.parent}):
        writer.opaque(f"devices/pci{root}")
    for function in machine.functions:
        folder = device_folder(machine, function.address)
        writer.files(folder, _attributes(machine, function))
        writer.link(f"{folder}/subsystem", "bus/pci")
        writer.link(f"bus/pci/devices/{function.address}", folder)
        if function.driver:
            driver = f"bus/pci/drivers/{function.driver}"
            writer.link(f"{folder}/driver", driver)
            writer.link(f"{driver}/{function.address}", folder)
    _write_drivers(machine, writer)


def _write_drivers(machine: Machine, writer: TreeWriter) -> None:
    modules = {name for name, _ in machine.modules}
    for driver in sorted({function.driver for function in machine.functions if function.driver}):
        for name in ("bind", "unbind", "new_id", "remove_id", "uevent"):
            writer.file(f"bus/pci/drivers/{driver}/{name}", "", mode=0o200)
        if driver in modules:
            writer.link(f"bus/pci/drivers/{driver}/module", f"module/{driver}")


def _attributes(machine: Machine, function: PciFunction) -> dict[str, str | bytes | int]:
    alias = (
        f"pci:v{int(function.vendor, 16):08X}d{int(function.device, 16):08X}"
        f"sv{int(function.subsystem_vendor, 16):08X}sd{int(function.subsystem_device, 16):08X}"
        f"bc{function.class_code[:2].upper()}sc{function.class_code[2:4].upper()}i{function.class_code[4:].upper()}"
    )
    values: dict[str, str | bytes | int] = {
        "vendor": f"0x{function.vendor}",
        "device": f"0x{function.device}",
        "class": f"0x{function.class_code}",
        "subsystem_vendor": f"0x{function.subsystem_vendor}",
        "subsystem_device": f"0x{function.subsystem_device}",
        "revision": f"0x{function.revision}",
        "config": config(machine, function),
        "resource": _resource(function),
        "numa_node": function.numa_node,
        "local_cpulist": "0",
        "irq": 16 + int(function.address[5:7], 16),
        "enable": 1 if function.driver else 0,
        "driver_override": "(null)",
        "power_state": "D0",
        "dma_mask_bits": 47,
        "modalias": alias,
        "uevent": _uevent(function, alias),
    }
    if function.class_code.startswith("0300"):
        values["boot_vga"] = 0
    if function.virtual_functions is not None:
        values.update(sriov_totalvfs=function.virtual_functions, sriov_numvfs=0, sriov_drivers_autoprobe=1)
    if function.link_speed:
        for kind in ("current", "max"):
            values[f"{kind}_link_speed"] = function.link_speed
            values[f"{kind}_link_width"] = function.link_width
    return values


def _uevent(function: PciFunction, alias: str) -> str:
    lines = [f"DRIVER={function.driver}"] if function.driver else []
    lines += [
        f"PCI_CLASS={int(function.class_code, 16):X}",
        f"PCI_ID={function.vendor.upper()}:{function.device.upper()}",
        f"PCI_SUBSYS_ID={function.subsystem_vendor.upper()}:{function.subsystem_device.upper()}",
        f"PCI_SLOT_NAME={function.address}",
        f"MODALIAS={alias}",
    ]
    return "\n".join(lines)


def _base(function: PciFunction) -> int:
    """Memory address of the first region, 1 MiB for each function."""
    return (
        0xC0000000
        + ((function.bus << 3 | (int(function.address[8:10], 16) + int(function.address[11])) & 7) & 0x3FF) * 0x100000
    )


def _resource(function: PciFunction) -> str:
    empty = "0x0000000000000000 0x0000000000000000 0x0000000000000000"
    first = empty
    if not function.is_bridge and not function.class_code.startswith("06"):
        start = _base(function)
        first = f"0x{start:016x} 0x{start + 0xFFFFF:016x} 0x0000000000040200"
    return "\n".join([first] + [empty] * 12)


def config(machine: Machine, function: PciFunction) -> bytes:
    """The function's configuration space, 256 bytes, as far as C(lspci) reads it."""
    space = bytearray(CONFIG_BYTES)
    code = int(function.class_code, 16)
    struct.pack_into("<HHHH", space, 0x00, int(function.vendor, 16), int(function.device, 16), 0x0006, 0x0010)
    space[0x08] = int(function.revision, 16)
    space[0x09:0x0C] = bytes((code & 0xFF, code >> 8 & 0xFF, code >> 16))
    siblings = sum(other.address[:10] == function.address[:10] for other in machine.functions)
    space[0x0E] = (1 if function.is_bridge else 0) | (0x80 if siblings > 1 else 0)
    if function.is_bridge:
        below = [other.bus for other in machine.functions if other.parent == function.address]
        secondary = min(below, default=0)
        space[0x18:0x1B] = bytes((function.bus, secondary, max(below, default=secondary)))
    elif not function.class_code.startswith("06"):
        struct.pack_into("<I", space, 0x10, _base(function))
        subsystem = int(function.subsystem_vendor, 16), int(function.subsystem_device, 16)
        struct.pack_into("<HH", space, 0x2C, *subsystem)
    space[0x34] = _CAPABILITIES
    _express(space, function)
    return bytes(space)


def _express(space: bytearray, function: PciFunction) -> None:
    """The PCI Express capability: endpoint or root port, link speed and width."""
    port_type = 4 if function.is_bridge else 0
    struct.pack_into("<BBH", space, _CAPABILITIES, _PCI_EXPRESS, 0, 2 | port_type << 4)
    speed = _SPEEDS.get(function.link_speed.split(" ")[0], 3)
    width = function.link_width or 8
    struct.pack_into("<I", space, _CAPABILITIES + 0x0C, speed | width << 4)
    struct.pack_into("<H", space, _CAPABILITIES + 0x12, speed | width << 4)
