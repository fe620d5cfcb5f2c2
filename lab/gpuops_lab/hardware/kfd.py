# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The topology of AMD's compute driver: one node for the CPUs of each socket, one for each GPU or partition."""

from __future__ import annotations

from gpuops_lab.hardware.machine import DrmDevice, Gpu, Machine
from gpuops_lab.hardware.tools import digest
from gpuops_lab.hardware.writer import TreeWriter

_XGMI, _PCIE = 11, 2
_SIMD_PER_UNIT = 4
_FRAME_BUFFER = 1  # heap type of a GPU's own memory
FOLDER = "devices/virtual/kfd/kfd"
_TOPOLOGY = f"{FOLDER}/topology"


def write(machine: Machine, writer: TreeWriter) -> None:
    """Write class/kfd; a machine without AMD's driver has none, and the host's stays hidden."""
    gpus = [gpu for gpu in machine.of("amd") if gpu.function.driver == "amdgpu"]
    if not gpus:
        return
    for path in ("class/kfd", FOLDER):
        writer.opaque(path)
    writer.link("class/kfd/kfd", FOLDER)
    writer.files(FOLDER, {"dev": "235:0", "uevent": "MAJOR=235\nMINOR=0\nDEVNAME=kfd"})
    writer.link("dev/char/235:0", FOLDER)
    writer.files(_TOPOLOGY, {"generation_id": 2, "system_properties": "platform_oem 0\nplatform_id 0\nplatform_rev 0"})
    sockets = max(gpu.function.numa_node for gpu in gpus) + 1
    for socket in range(sockets):
        _write_cpu(writer, socket)
    members = [(gpu, drm) for gpu in gpus for drm in _drm_devices(gpu)]
    # Partitions follow the GPU they belong to.
    numbers = {drm.card: sockets + position for position, (_, drm) in enumerate(members)}
    for gpu, drm in members:
        _write_gpu(writer, gpu, drm, numbers[drm.card])
        others = [(other, numbers[device.card]) for other, device in members if device.card != drm.card]
        _write_links(writer, gpu, numbers[drm.card], others)


def _drm_devices(gpu: Gpu) -> list[DrmDevice]:
    return ([gpu.drm] if gpu.drm else []) + [partition.drm for partition in gpu.partitions]


def _node(writer: TreeWriter, number: int, name: str, gpu_id: int, properties: dict[str, int]) -> str:
    folder = f"{_TOPOLOGY}/nodes/{number}"
    text = "\n".join(f"{key} {value}" for key, value in properties.items())
    writer.files(folder, {"name": name, "gpu_id": gpu_id, "properties": text})
    return folder


def _write_cpu(writer: TreeWriter, socket: int) -> None:
    properties = {
        "cpu_cores_count": 96, "simd_count": 0, "mem_banks_count": 1, "caches_count": 0, "io_links_count": 0,
        "cpu_core_id_base": socket * 96, "simd_id_base": 0, "max_waves_per_simd": 0, "gfx_target_version": 0,
        "vendor_id": 0, "device_id": 0, "location_id": 0, "domain": 0, "drm_render_minor": 0,
    }  # fmt: skip
    folder = _node(writer, socket, "", 0, properties)
    writer.file(
        f"{folder}/mem_banks/0/properties", "heap_type 0\nsize_in_bytes 824633720832\nflags 0\nwidth 64\nmem_clk_max 4800"
    )


def _write_gpu(writer: TreeWriter, gpu: Gpu, drm: DrmDevice, number: int) -> None:
    parts = len(gpu.partitions) + 1
    major, minor = gpu.architecture.removeprefix("gfx")[:-2], gpu.architecture[-2:]
    location = gpu.function.bus << 8 | int(gpu.address[8:10], 16) << 3
    properties = {
        "cpu_cores_count": 0,
        "simd_count": gpu.compute_units * _SIMD_PER_UNIT // parts,
        "mem_banks_count": 1,
        "caches_count": 0,
        "io_links_count": 0,
        "simd_per_cu": _SIMD_PER_UNIT,
        "max_waves_per_simd": 8,
        "lds_size_in_kb": 64,
        "wave_front_size": 64,
        "gfx_target_version": int(major) * 10000 + int(minor[0], 16) * 100 + int(minor[1], 16),
        "vendor_id": int(gpu.function.vendor, 16),
        "device_id": int(gpu.function.device, 16),
        "location_id": location,
        "domain": int(gpu.address[:4], 16),
        "drm_render_minor": drm.render or 0,
        "hive_id": int(digest("hive", 8), 16),
        "num_xcc": max(1, 8 // parts),
        "max_engine_clk_fcompute": 2100,
        "unique_id": int(gpu.uuid, 16),
    }
    folder = _node(writer, number, "ip discovery", int(digest(f"{gpu.uuid} {drm.card}", 4), 16), properties)
    memory = gpu.memory_bytes // int(gpu.memory_partition.removeprefix("NPS") or 1)
    writer.file(
        f"{folder}/mem_banks/0/properties",
        f"heap_type {_FRAME_BUFFER}\nsize_in_bytes {memory}\nflags 0\nwidth 8192\nmem_clk_max 1300",
    )


def _write_links(writer: TreeWriter, gpu: Gpu, number: int, others: list[tuple[Gpu, int]]) -> None:
    """Links to the own socket over PCIe and to every other GPU over the fabric."""
    links = [(_PCIE, gpu.function.numa_node, 20)]
    linked = gpu.memory_partition != ""
    links += [(_XGMI if linked else _PCIE, peer, 15 if linked else 40) for _, peer in others]
    for position, (kind, peer, weight) in enumerate(links):
        text = f"type {kind}\nversion_major 0\nversion_minor 0\nnode_from {number}\nnode_to {peer}\nweight {weight}"
        writer.file(f"{_TOPOLOGY}/nodes/{number}/io_links/{position}/properties", text)


def device_paths(machine: Machine) -> list[str]:
    """The one node that all of AMD's GPUs share."""
    return ["/dev/kfd"] if any(gpu.function.driver == "amdgpu" for gpu in machine.of("amd")) else []
