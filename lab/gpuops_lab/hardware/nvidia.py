# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVIDIA's driver shows below /proc/driver, and its device nodes."""

from __future__ import annotations

from gpuops_lab.hardware.machine import Gpu, Machine
from gpuops_lab.hardware.writer import TreeWriter

_CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


def driven(machine: Machine) -> list[Gpu]:
    """GPUs that NVIDIA's own driver holds."""
    return [gpu for gpu in machine.of("nvidia") if gpu.function.driver == "nvidia"]


def write(machine: Machine, writer: TreeWriter) -> None:
    """Write driver/nvidia below a procfs tree."""
    gpus = driven(machine)
    if not gpus:
        return
    version = gpus[0].driver_version
    writer.file(
        "driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (simulated by gpuops.k8s)\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)\n",
    )
    writer.file("driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n")
    writer.file("driver/nvidia/registry", 'Binary: ""\n')
    writer.file("driver/nvidia/capabilities/mig/config", "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n")
    for gpu in gpus:
        writer.file(f"driver/nvidia/gpus/{gpu.address}/information", _information(gpu))
        writer.file(f"driver/nvidia/gpus/{gpu.address}/registry", "")


def _information(gpu: Gpu) -> str:
    return (
        f"Model: \t\t {gpu.product}\n"
        f"IRQ:   \t\t {16 + gpu.function.bus}\n"
        f"GPU UUID: \t {gpu.uuid}\n"
        "Video BIOS: \t 96.00.89.00.01\n"
        "Bus Type: \t PCIe\n"
        "DMA Size: \t 52 bits\n"
        "DMA Mask: \t 0xfffffffffffff\n"
        f"Bus Location: \t {gpu.address}\n"
        f"Device Minor: \t {gpu.minor}\n"
        f"GPU Firmware: \t {gpu.driver_version}\n"
        "GPU Excluded:\t No\n"
    )


def device_paths(machine: Machine) -> list[str]:
    """Nodes of single GPUs, then those that all share."""
    gpus = driven(machine)
    return [f"/dev/nvidia{gpu.minor}" for gpu in gpus] + (list(_CONTROL_NODES) if gpus else [])
