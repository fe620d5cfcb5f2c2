# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes everything by which a node shows a machine: sysfs, procfs, device nodes, vendor tools."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from gpuops_lab.hardware import amd, drm, kfd, nvidia, nvidia_library, pci, tools
from gpuops_lab.hardware.machine import Machine
from gpuops_lab.hardware.writer import TreeWriter

_GPU_MODULES = (
    "nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nvidia_fs", "nouveau", "nova_core",
    "amdgpu", "amdxcp", "amdkfd", "radeon", "i915", "xe", "ast", "drm",
)  # fmt: skip
# Device numbers that programs look up for nodes that every Linux has.
_COMMON_CHARACTER_DEVICES = {
    "1:1": "mem", "1:3": "null", "1:5": "zero", "1:7": "full", "1:8": "random", "1:9": "urandom", "1:11": "kmsg",
}  # fmt: skip
DeviceNode = dict[str, str | int]


def write(machine: Machine, target: Path) -> None:
    """Write a machine's trees into a folder; what an earlier call left there is replaced.

    C(target/sys) is made to lie over the real /sys and hides the host's own PCI, DRM and KFD devices.
    C(target/proc) holds C(driver/) and C(modules), C(target/root) the vendor tools,
    C(target/device_nodes.json) a list of device nodes to make and links to set, in order.

    Raises:
        LabError: The file system cannot carry overlay marks.
    """
    for name in ("sys", "proc", "root"):
        shutil.rmtree(target / name, ignore_errors=True)
    sys_writer = TreeWriter(target / "sys")
    _hide_host(sys_writer)
    pci.write(machine, sys_writer)
    drm.write(machine, sys_writer)
    kfd.write(machine, sys_writer)
    amd.write(machine, sys_writer)
    _write_modules(machine, sys_writer)
    _write_identity(machine, sys_writer)
    _hide_absent(sys_writer)
    proc_writer = TreeWriter(target / "proc")
    proc_writer.folder("driver")
    nvidia.write(machine, proc_writer)
    proc_writer.file("modules", _proc_modules(machine))
    root_writer = TreeWriter(target / "root")
    tools.write(machine, root_writer)
    nvidia_library.write(machine, root_writer)
    text = json.dumps(device_nodes(machine), indent=1)
    (target / "device_nodes.json").write_text(f"{text}\n", encoding="utf-8")


def device_nodes(machine: Machine) -> list[DeviceNode]:
    """The machine's device nodes and links below /dev.

    All are the null device, the only kind that any kernel opens without hardware; a node's path is its identity.
    """
    nodes = nvidia.device_paths(machine) + kfd.device_paths(machine) + drm.device_paths(machine)
    made: list[DeviceNode] = [{"path": path, "major": 1, "minor": 3, "mode": "0666"} for path in nodes]
    links = drm.by_path_links(machine)
    return made + [{"path": path, "link": to} for path, to in sorted(links.items())]


def _hide_host(writer: TreeWriter) -> None:
    for path in ("bus/pci", "class/drm", "class/hwmon", "dev/char"):
        writer.opaque(path)
    for entry in sorted(os.listdir("/sys/devices")) if os.path.isdir("/sys/devices") else ():
        if entry.startswith("pci"):
            writer.opaque(f"devices/{entry}")
    # With the host's PCI tree out of sight its disks would be links to nowhere.
    blocks = Path("/sys/block")
    if blocks.is_dir() and any("/pci" in os.readlink(link) for link in blocks.iterdir() if link.is_symlink()):
        for path in ("block", "class/block", "dev/block"):
            writer.opaque(path)
    for number, name in _COMMON_CHARACTER_DEVICES.items():
        writer.link(f"dev/char/{number}", f"devices/virtual/mem/{name}")


def _hide_absent(writer: TreeWriter) -> None:
    """Hide what the host has and the machine has not. Programs take the mere presence of these for a driver."""
    names = ["class/kfd", "devices/virtual/kfd", "class/accel", *(f"module/{name}" for name in _GPU_MODULES)]
    names += [f"devices/platform/{path.name}" for path in sorted(Path("/sys/devices/platform").glob("amdgpu_xcp*"))]
    for name in names:
        if Path("/sys", name).exists():
            writer.hide(name)


def _write_modules(machine: Machine, writer: TreeWriter) -> None:
    loaded = _loaded(machine)
    for name, version in loaded.items():
        folder = f"module/{name}"
        writer.opaque(folder)
        writer.files(folder, {"refcnt": len(machine.gpus), "initstate": "live", "coresize": 65536, "taint": ""})
        writer.folder(f"{folder}/holders")
        if version:
            writer.files(folder, {"version": version, "srcversion": tools.digest(f"{name} {version}", 24).upper()})
        if (writer.root / "bus/pci/drivers" / name).is_dir():
            writer.link(f"{folder}/drivers/pci:{name}", f"bus/pci/drivers/{name}")


def _loaded(machine: Machine) -> dict[str, str]:
    loaded = dict(machine.modules)
    if any(gpu.drm for gpu in machine.gpus) or machine.displays:
        loaded["drm"] = ""
    return loaded


def _proc_modules(machine: Machine) -> str:
    lines = []
    for position, (name, version) in enumerate(sorted(_loaded(machine).items())):
        taint = " (OE)" if version else ""
        lines.append(f"{name} 1048576 {len(machine.gpus)} - Live 0x{0xFFFFFFFFC0000000 + position * 0x100000:016x}{taint}")
    return "\n".join(lines)


def _write_identity(machine: Machine, writer: TreeWriter) -> None:
    vendor = {"PowerEdge": "Dell Inc."}.get(machine.product.split(" ")[0], "gpuops.k8s")
    folder = "devices/virtual/dmi/id"
    writer.opaque(folder)
    writer.files(folder, {"product_name": machine.product, "sys_vendor": vendor, "chassis_type": "23"})
    writer.opaque("class/dmi")
    writer.link("class/dmi/id", folder)
