# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD. Sources: the GPU operator's feature rules for PCI ids, the k8s-device-plugin's manifests and flags."""

from __future__ import annotations

from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import (
    GIB,
    DevicePlugin,
    HostPath,
    KernelMessage,
    Model,
    PluginOption,
    Reading,
    Vendor,
)
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.user_space import (
    DeviceSpecification,
    Incompatibility,
    KernelDriver,
    PackageSet,
    Repository,
    SmokeTest,
    UserSpace,
)

_MODELS = {
    "738c": Model("Instinct MI100", 32 * GIB, "gfx908"),
    "738e": Model("Instinct MI100", 32 * GIB, "gfx908"),
    "7408": Model("Instinct MI250X", 128 * GIB, "gfx90a"),
    "740c": Model("Instinct MI250", 128 * GIB, "gfx90a"),
    "740f": Model("Instinct MI210", 64 * GIB, "gfx90a"),
    "74a0": Model("Instinct MI300A", 128 * GIB, "gfx942"),
    "74a1": Model("Instinct MI300X", 192 * GIB, "gfx942"),
    "74a2": Model("Instinct MI308X", 192 * GIB, "gfx942"),
    "74a5": Model("Instinct MI325X", 256 * GIB, "gfx942"),
    "74a8": Model("Instinct MI308X HF", 192 * GIB, "gfx942"),
    "74a9": Model("Instinct MI300X HF", 192 * GIB, "gfx942"),
    # Virtual functions, in the guests that they are passed to: a driver there names neither model nor memory.
    "7410": Model("Instinct MI210 VF", 64 * GIB, "gfx90a"),
    "74b5": Model("Instinct MI300X VF", 192 * GIB, "gfx942"),
    "74b6": Model("Instinct MI308X VF", 192 * GIB, "gfx942"),
    "74b9": Model("Instinct MI325X VF", 256 * GIB, "gfx942"),
    "74bc": Model("Instinct MI308X HF VF", 192 * GIB, "gfx942"),
    "74bd": Model("Instinct MI300X HF VF", 192 * GIB, "gfx942"),
    "75b0": Model("Instinct MI350X VF", 288 * GIB, "gfx950"),
    "75b3": Model("Instinct MI355X VF", 288 * GIB, "gfx950"),
    "75a0": Model("Instinct MI350X", 288 * GIB, "gfx950"),
    "75a3": Model("Instinct MI355X", 288 * GIB, "gfx950"),
    "7448": Model("Radeon PRO W7900", 48 * GIB, "gfx1100"),
    "7551": Model("Radeon AI PRO R9700", 32 * GIB, "gfx1201"),
    # Parts of processors; their memory is a share of the node's. MI300A is one too, but bought to compute, so it counts.
    "1638": Model("Cezanne", 0, "gfx90c", integrated=True),
    "164e": Model("Raphael", 0, "gfx1036", integrated=True),
    "1681": Model("Rembrandt", 0, "gfx1035", integrated=True),
    "15bf": Model("Phoenix", 0, "gfx1103", integrated=True),
    "150e": Model("Strix", 0, "gfx1150", integrated=True),
    "1586": Model("Strix Halo", 0, "gfx1151", integrated=True),
}

_ROCM = "7.0.2"
_ROCM_SITE = "https://repo.radeon.com/rocm"
_ROCM_KEY = f"{_ROCM_SITE}/rocm.gpg.key"
_ROCM_PACKAGES = ("rocminfo", "rocm-smi-lib", "amd-smi-lib")

_USER_SPACE = UserSpace(
    cdi=DeviceSpecification(kind="amd.com/gpu"),
    sets={
        "distribution": {
            "debian-12": PackageSet(("rocminfo", "rocm-smi")),
            "debian": PackageSet(("rocminfo", "rocm-smi", "amd-smi")),
            "ubuntu": PackageSet(("rocminfo", "rocm-smi")),
            "fedora": PackageSet(("rocminfo", "rocm-smi", "amdsmi")),
        },
        "vendor": {
            "ubuntu": PackageSet(
                _ROCM_PACKAGES,
                repository_version=_ROCM,
                repository=Repository(
                    "rocm", f"{_ROCM_SITE}/apt/{{version}}", _ROCM_KEY, suite="{codename}", components=("main",)
                ),
            ),
            "redhat": PackageSet(
                _ROCM_PACKAGES,
                repository_version=_ROCM,
                repository=Repository("rocm", f"{_ROCM_SITE}/el{{major}}/{{version}}/main", _ROCM_KEY),
            ),
            "suse": PackageSet(
                _ROCM_PACKAGES,
                repository_version=_ROCM,
                repository=Repository("rocm", f"{_ROCM_SITE}/zyp/{{version}}/main", _ROCM_KEY),
            ),
        },
    },
    smoke_tests=(
        SmokeTest(("rocminfo",), r"^\s*Device Type:\s+GPU"),
        SmokeTest(("rocm-smi", "--showid"), r"^GPU\[\d+\].*Device ID"),
        SmokeTest(("amd-smi", "list"), r"^GPU:? ?\d+"),
    ),
    driver=KernelDriver(
        packages={
            "debian": ("firmware-amd-graphics",),
            "ubuntu": ("linux-firmware",),
            "redhat": ("linux-firmware",),
            "suse": ("kernel-firmware-amdgpu",),
        },
        modules=("amdgpu",),
        blacklist=("radeon",),
    ),
    groups=("render", "video"),
    guidance=("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
)

_INCOMPATIBILITIES = (
    Incompatibility(
        "plugin_misses_partitions",
        {"plugin": "<1.31.0.9", "partitions": ">=2"},
        "device plugin {plugin} does not find the partitions of drivers from ROCm 7.0.1 on",
        "Use device plugin 1.31.0.9 or newer.",
        "ROCm/k8s-device-plugin#157, #184",
    ),
    Incompatibility(
        "driver_of_rocm_6_3_3",
        {"driver": ">=6.10.5,<6.10.7"},
        "driver {driver} (ROCm 6.3.3, 6.3.4) counts no devices beside an in-box module",
        "Blacklist the in-box module and reboot, or use a newer driver.",
        "ROCm/gpu-operator#66",
    ),
)

VENDOR = Vendor(
    name="amd",
    title="AMD",
    pci_vendor_id="1002",
    models=_MODELS,
    resources={"amdgpu": "amd.com/gpu"},
    device_id_pattern=r"^(?P<key>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|amdgpu_xcp_\d+)$",
    device_id_fact="pci_address",
    device_globs=("/dev/dri/card*", "/dev/dri/renderD*"),
    control_nodes=("/dev/kfd",),
    required_nodes=("/dev/kfd",),
    node_label="amd.com/gpu.present",
    foreign_drivers=("vfio-pci", "radeon"),
    tool=("rocm-smi", "--showid"),
    visible_env="",
    stale_resource_prefix="amd.com/",
    reading=Reading(
        drm_nodes=True,
        uuid_file="unique_id",
        memory_files=("mem_info_vram_total",),
        version_files=("/sys/module/{driver}/version",),
        # Newer kernels write a dot before the number.
        partition_folders="/sys/devices/platform/amdgpu_xcp[_.]*",
        topology="/sys/class/kfd/kfd/topology/nodes",
        missing_nodes_hint="Look at dmesg for amdgpu, and that udev runs.",
        topology_links={11: "xgmi"},
        mode_files={
            "compute_partition_mode": "current_compute_partition",
            "memory_partition_mode": "current_memory_partition",
        },
        ecc_file="ras/umc_err_count",
        userspace_files=("/opt/rocm/.info/version",),
        kernel_messages=(
            KernelMessage(
                r"amdgpu (?P<address>[0-9a-f:.]+): amdgpu: "
                r"(?P<detail>GPU reset|ring \S+ timeout|[^\n]*uncorrectable hardware error)",
                "",
                "Drain the node and reboot it; look at the memory errors that rocm-smi --showrasinfo counts.",
            ),
        ),
        # The security processor of an APU is a function beside its GPU.
        integrated_siblings=("1080",),
    ),
    plugin=DevicePlugin(
        name="amdgpu-device-plugin",
        image="docker.io/rocm/k8s-device-plugin",
        version="1.31.0.9",
        socket="amd.com_*",
        host_paths=(
            HostPath("device-plugins", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/device-plugins", read_only=False),
            HostPath("sys", "/sys", "/sys"),
        ),
        tolerations=({"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
        options={
            "pulse": PluginOption("-pulse={value}", "int"),
            "resource_naming_strategy": PluginOption("-resource_naming_strategy={value}", choices=("single", "mixed")),
        },
    ),
    user_space=_USER_SPACE,
    incompatibilities=_INCOMPATIBILITIES,
)
