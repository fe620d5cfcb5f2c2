# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attributes that AMD's driver adds to a PCI function."""

from __future__ import annotations

from gpuops_lab.hardware import pci
from gpuops_lab.hardware.machine import Gpu, Machine
from gpuops_lab.hardware.writer import TreeWriter

_COMPUTE_MODES = "SPX, DPX, QPX, CPX"
_MEMORY_MODES = "NPS1, NPS4"


def write(machine: Machine, writer: TreeWriter) -> None:
    """Write memory, ids, partition modes and sensors of GPUs bound to amdgpu."""
    for position, gpu in enumerate(machine.of("amd")):
        if gpu.function.driver != "amdgpu":
            continue
        folder = pci.device_folder(machine, gpu.address)
        writer.files(folder, _attributes(gpu))
        if "Instinct" in gpu.product:
            writer.file(f"{folder}/ras/umc_err_count", "ue: 0\nce: 0")
        if gpu.compute_partition:
            writer.files(
                folder,
                {
                    "current_compute_partition": gpu.compute_partition,
                    "available_compute_partition": _COMPUTE_MODES,
                    "current_memory_partition": gpu.memory_partition,
                    "available_memory_partition": _MEMORY_MODES,
                },
            )
        _write_sensors(writer, folder, position)


def _attributes(gpu: Gpu) -> dict[str, str | bytes | int]:
    return {
        "unique_id": gpu.uuid,
        "product_name": gpu.product,
        "product_number": "102-G30211-0C",
        "serial_number": gpu.uuid[:12],
        "mem_info_vram_total": gpu.memory_bytes,
        "mem_info_vram_used": 297_000_960,
        "mem_info_vis_vram_total": gpu.memory_bytes,
        "mem_info_gtt_total": 811_748_818_944,
        "mem_info_gtt_used": 12_582_912,
        "gpu_busy_percent": 0,
        "vbios_version": "113-MI3SRIOV-001",
        "power_dpm_force_performance_level": "auto",
        "pp_dpm_sclk": "0: 132Mhz *\n1: 2100Mhz",
        "pp_dpm_mclk": "0: 900Mhz *\n1: 1300Mhz",
    }


def _write_sensors(writer: TreeWriter, folder: str, position: int) -> None:
    sensors = f"{folder}/hwmon/hwmon{position}"
    writer.files(sensors, {"name": "amdgpu", "temp1_input": 38000, "temp1_label": "edge", "power1_average": 140_000_000})
    writer.link(f"{sensors}/device", folder)
    writer.link(f"class/hwmon/hwmon{position}", sensors)
