# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Intel. Sources: the GPU plugin's manifests and flags, the resource driver's table of PCI ids."""

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
    "0b69": Model("Data Center GPU Max 1550", 128 * GIB, "xe-hpc"),
    "0bd0": Model("Data Center GPU Max 1550", 128 * GIB, "xe-hpc"),
    "0bd5": Model("Data Center GPU Max 1550", 128 * GIB, "xe-hpc"),
    "0bd6": Model("Data Center GPU Max 1450", 128 * GIB, "xe-hpc"),
    "0bd9": Model("Data Center GPU Max 1100", 48 * GIB, "xe-hpc"),
    "0bda": Model("Data Center GPU Max 1100", 48 * GIB, "xe-hpc"),
    "0bdb": Model("Data Center GPU Max 1100", 48 * GIB, "xe-hpc"),
    "56c0": Model("Data Center GPU Flex 170", 16 * GIB, "xe-hpg"),
    "56c1": Model("Data Center GPU Flex 140", 6 * GIB, "xe-hpg"),
    "56a0": Model("Arc A770", 16 * GIB, "xe-hpg"),
    "56a1": Model("Arc A750", 8 * GIB, "xe-hpg"),
    "56a5": Model("Arc A380", 6 * GIB, "xe-hpg"),
    "56a6": Model("Arc A310", 4 * GIB, "xe-hpg"),
    "56b1": Model("Arc Pro A40/A50", 6 * GIB, "xe-hpg"),
    "e20b": Model("Arc B580", 12 * GIB, "xe2-hpg"),
    "e20c": Model("Arc B570", 10 * GIB, "xe2-hpg"),
    "e211": Model("Arc Pro B60", 24 * GIB, "xe2-hpg"),
    "e212": Model("Arc Pro B50", 16 * GIB, "xe2-hpg"),
    # Parts of processors; their memory is a share of the node's.
    "4626": Model("Alder Lake-P", 0, "xe-lp", integrated=True),
    "4680": Model("UHD Graphics 770", 0, "xe-lp", integrated=True),
    "a7a0": Model("Raptor Lake-P", 0, "xe-lp", integrated=True),
    "a780": Model("UHD Graphics 770", 0, "xe-lp", integrated=True),
    "7d67": Model("Arrow Lake-S", 0, "xe-lpg", integrated=True),
    "64a0": Model("Lunar Lake", 0, "xe2-lpg", integrated=True),
}

_GRAPHICS_SITE = "https://repositories.intel.com/gpu"
_GRAPHICS_KEY = f"{_GRAPHICS_SITE}/intel-graphics.key"

_USER_SPACE = UserSpace(
    cdi=DeviceSpecification(kind="intel.com/gpu"),
    sets={
        "distribution": {
            "debian": PackageSet(("libze1", "intel-opencl-icd", "clinfo")),
            "ubuntu": PackageSet(("libze1", "libze-intel-gpu1", "intel-opencl-icd", "clinfo")),
            "ubuntu-22.04": PackageSet(("intel-opencl-icd", "clinfo")),
            "fedora": PackageSet(("oneapi-level-zero", "intel-compute-runtime", "clinfo")),
        },
        "vendor": {
            "ubuntu": PackageSet(
                ("libze1", "libze-intel-gpu1", "intel-opencl-icd", "clinfo"),
                repository=Repository(
                    "intel-gpu", f"{_GRAPHICS_SITE}/ubuntu", _GRAPHICS_KEY, suite="{codename}", components=("unified",)
                ),
            ),
            "redhat": PackageSet(
                ("level-zero", "intel-level-zero-gpu", "intel-opencl", "clinfo"),
                repository=Repository("intel-gpu", f"{_GRAPHICS_SITE}/rhel/{{release}}/unified", _GRAPHICS_KEY),
            ),
            "suse": PackageSet(
                ("level-zero", "intel-level-zero-gpu", "intel-opencl", "clinfo"),
                repository=Repository("intel-gpu", f"{_GRAPHICS_SITE}/sles/{{codename}}/unified", _GRAPHICS_KEY),
            ),
        },
    },
    smoke_tests=(SmokeTest(("clinfo", "--list"), r"Device #\d+: .*Intel"),),
    driver=KernelDriver(
        packages={
            "debian-12": ("firmware-misc-nonfree",),
            "debian": ("firmware-intel-graphics",),
            "ubuntu": ("linux-firmware",),
            "redhat": ("linux-firmware",),
            "suse": ("kernel-firmware-i915",),
        },
        modules=("i915", "xe"),
    ),
    groups=("render", "video"),
    guidance=("ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK"),
)

_INCOMPATIBILITIES = (
    Incompatibility(
        "plugin_older_than_cluster",
        {"plugin": "<0.34", "kubernetes": ">=1.35"},
        "device plugin {plugin} is older than the last three releases for Kubernetes {kubernetes}",
        "Release 0.n of the plugin belongs to Kubernetes 1.n: take the one of the cluster.",
        "intel-device-plugins-for-kubernetes: supported branches",
    ),
    Incompatibility(
        "kernel_without_xe",
        {"module": "xe", "kernel": "<6.8"},
        "kernel {kernel} has the xe driver only as an experiment",
        "Use kernel 6.8 or newer, 6.12 for Battlemage.",
        "Linux kernel release notes",
    ),
    Incompatibility(
        "kernel_without_discrete_i915",
        {"module": "i915", "architecture": "xe-hpg|xe-hpc", "kernel": "<6.2", "out_of_tree": "no"},
        "the i915 driver of kernel {kernel} does not drive discrete GPUs",
        "Use kernel 6.2 or newer, or the vendor's out-of-tree driver.",
        "intel-device-plugins-for-kubernetes#1514, #1109",
    ),
)

VENDOR = Vendor(
    name="intel",
    title="Intel",
    pci_vendor_id="8086",
    models=_MODELS,
    resources={"i915": "gpu.intel.com/i915", "xe": "gpu.intel.com/xe"},
    device_id_pattern=r"^(?P<key>card\d+)-\d+$",
    device_id_fact="card",
    device_globs=("/dev/dri/card*", "/dev/dri/renderD*"),
    control_nodes=(),
    node_label="gpu.intel.com/gpu.present",
    foreign_drivers=("vfio-pci",),
    tool=("xpu-smi", "discovery", "--dump", "1,2,3"),
    visible_env="",
    stale_resource_prefix="gpu.intel.com/",
    reading=Reading(
        drm_nodes=True,
        memory_files=("drm/{card}/lmem_total_bytes", "tile*/physical_vram_size_bytes"),
        version_files=("/sys/module/{driver}/version",),
        missing_nodes_hint="Look at dmesg for {driver}, and that udev runs.",
        library_links=("/usr/lib/*-linux-gnu/libze_intel_gpu.so.1", "/usr/lib64/libze_intel_gpu.so.1"),
        kernel_messages=(
            KernelMessage(
                r"(?:i915|xe) (?P<address>[0-9a-f:.]+): \[drm\] (?:\*ERROR\* )?"
                r"(?P<detail>GPU HANG|[^\n]*wedged|[^\n]*Engine reset)",
                "",
                "Drain the node and reboot it; update kernel and firmware.",
            ),
        ),
        integrated_addresses=("0000:00:02.*",),
    ),
    plugin=DevicePlugin(
        name="intel-gpu-plugin",
        image="docker.io/intel/intel-gpu-plugin",
        version="0.37.0",
        socket="gpu.intel.com-*.sock",
        host_paths=(
            HostPath("device-plugins", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/device-plugins", read_only=False),
            HostPath("dev-dri", "/dev/dri", "/dev/dri"),
            # The links in /sys/class/drm lead into /sys/devices, so the whole tree is mounted.
            HostPath("sys", "/sys", "/sys"),
            HostPath("cdi", "/var/run/cdi", "/var/run/cdi", read_only=False, type="DirectoryOrCreate"),
        ),
        tolerations=({"key": "gpu.intel.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
        options={
            "shared_dev_num": PluginOption("-shared-dev-num={value}", "int"),
            "allocation_policy": PluginOption("-allocation-policy={value}", choices=("none", "balanced", "packed")),
            "enable_monitoring": PluginOption("-enable-monitoring={value}", "bool"),
            "monitoring_mode": PluginOption("-monitoring-mode={value}", choices=("single", "split")),
            "bypath": PluginOption("-bypath={value}", choices=("single", "none", "all")),
            "allow_ids": PluginOption("-allow-ids={value}"),
            "deny_ids": PluginOption("-deny-ids={value}"),
        },
    ),
    user_space=_USER_SPACE,
    incompatibilities=_INCOMPATIBILITIES,
    # Its neural processors and FPGAs are of class 1200, its GPUs never.
    pci_classes=("0300", "0302", "0380"),
    # The plugin leaves out a GPU as soon as it has virtual functions and offers those.
    offers_divided=False,
)
