# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA. Sources: PCI ids of open-gpu-kernel-modules, the k8s-device-plugin's manifests and flags."""

from __future__ import annotations

from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import (
    GIB,
    DevicePlugin,
    HostPath,
    KernelMessage,
    Model,
    PluginOption,
    Reading,
    ToolTable,
    Vendor,
)
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.user_space import (
    DeviceSpecification,
    Incompatibility,
    KernelDriver,
    PackageSet,
    Repository,
    RuntimeHandler,
    SmokeTest,
    UserSpace,
)

_MODELS = {
    "1db4": Model("V100 PCIe 16GB", 16 * GIB, "volta", "7.0"),
    "1db5": Model("V100 SXM2 32GB", 32 * GIB, "volta", "7.0"),
    "1eb8": Model("T4", 16 * GIB, "turing", "7.5"),
    "20b0": Model("A100 SXM4 40GB", 40 * GIB, "ampere", "8.0"),
    "20b2": Model("A100 SXM4 80GB", 80 * GIB, "ampere", "8.0"),
    "20b5": Model("A100 PCIe 80GB", 80 * GIB, "ampere", "8.0"),
    "20f1": Model("A100 PCIe 40GB", 40 * GIB, "ampere", "8.0"),
    "20b7": Model("A30", 24 * GIB, "ampere", "8.0"),
    "2235": Model("A40", 48 * GIB, "ampere", "8.6"),
    "2236": Model("A10", 24 * GIB, "ampere", "8.6"),
    "2237": Model("A10G", 24 * GIB, "ampere", "8.6"),
    "25b6": Model("A16", 16 * GIB, "ampere", "8.6"),
    "26b5": Model("L40", 48 * GIB, "ada-lovelace", "8.9"),
    "26b9": Model("L40S", 48 * GIB, "ada-lovelace", "8.9"),
    "26ba": Model("L20", 48 * GIB, "ada-lovelace", "8.9"),
    "27b8": Model("L4", 24 * GIB, "ada-lovelace", "8.9"),
    "2330": Model("H100 SXM5 80GB", 80 * GIB, "hopper", "9.0"),
    "2331": Model("H100 PCIe 80GB", 80 * GIB, "hopper", "9.0"),
    "2321": Model("H100 NVL 94GB", 94 * GIB, "hopper", "9.0"),
    "2329": Model("H20 96GB", 96 * GIB, "hopper", "9.0"),
    "2335": Model("H200 SXM 141GB", 141 * GIB, "hopper", "9.0"),
    "233b": Model("H200 NVL 141GB", 141 * GIB, "hopper", "9.0"),
    "2342": Model("GH200 96GB", 96 * GIB, "hopper", "9.0"),
    "2348": Model("GH200 144GB", 144 * GIB, "hopper", "9.0"),
    "2901": Model("B200 180GB", 180 * GIB, "blackwell", "10.0"),
    "2941": Model("GB200 186GB", 186 * GIB, "blackwell", "10.0"),
    "3182": Model("B300", 270 * GIB, "blackwell", "10.3"),
    "31c2": Model("GB300", 278 * GIB, "blackwell", "10.3"),
    "2bb1": Model("RTX PRO 6000 Blackwell", 96 * GIB, "blackwell", "12.0"),
    "2bb4": Model("RTX PRO 6000 Blackwell Max-Q", 96 * GIB, "blackwell", "12.0"),
    "2bb5": Model("RTX PRO 6000 Blackwell Server", 96 * GIB, "blackwell", "12.0"),
}

_TOOLKIT = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1")
_TOOLKIT_VERSION = "1.20.2-1"
_TOOLKIT_SITE = "https://nvidia.github.io/libnvidia-container"
_TOOLKIT_DEB = Repository(
    "nvidia-container-toolkit", f"{_TOOLKIT_SITE}/stable/deb/{{architecture}}", f"{_TOOLKIT_SITE}/gpgkey", suite="/"
)
_TOOLKIT_RPM = Repository(
    "nvidia-container-toolkit", f"{_TOOLKIT_SITE}/stable/rpm/{{architecture}}", f"{_TOOLKIT_SITE}/gpgkey"
)

_USER_SPACE = UserSpace(
    cdi=DeviceSpecification(
        kind="nvidia.com/gpu",
        generator=(
            "nvidia-ctk",
            "cdi",
            "generate",
            "--format=json",
            "--device-name-strategy=index",
            "--device-name-strategy=uuid",
        ),
        disable_hook="--disable-hook={value}",
    ),
    sets={
        "vendor": {
            "debian": PackageSet(_TOOLKIT, _TOOLKIT_VERSION, repository=_TOOLKIT_DEB),
            "redhat": PackageSet(_TOOLKIT, _TOOLKIT_VERSION, repository=_TOOLKIT_RPM),
            "suse": PackageSet(_TOOLKIT, _TOOLKIT_VERSION, repository=_TOOLKIT_RPM),
        },
    },
    smoke_tests=(SmokeTest(("nvidia-smi", "-L"), r"^GPU \d+: "),),
    handlers=(RuntimeHandler("nvidia", "/usr/bin/nvidia-container-runtime"),),
    driver=KernelDriver(
        packages={
            "debian": ("nvidia-open-kernel-dkms", "nvidia-driver"),
            "ubuntu": ("nvidia-driver-580-server-open",),
            "redhat": ("nvidia-open",),
            "suse": ("nvidia-open-driver-G06-signed-kmp-default",),
        },
        modules=("nvidia", "nvidia_uvm"),
        blacklist=("nouveau",),
    ),
    guidance=("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
)

_INCOMPATIBILITIES = (
    Incompatibility(
        "toolkit_escape",
        {"toolkit": "<1.17.8"},
        "nvidia-container-toolkit {toolkit} lets a container take over the node",
        "Use 1.17.8 or newer.",
        "CVE-2025-23266, CVE-2025-23267",
    ),
    Incompatibility(
        "toolkit_loses_imports",
        {"toolkit": ">=1.18.0,<1.18.1"},
        "nvidia-container-toolkit {toolkit} replaces the imports of containerd's configuration",
        "Use 1.18.1 or newer.",
        "nvidia-container-toolkit#1404",
    ),
    Incompatibility(
        "proprietary_module_on_blackwell",
        {"architecture": "blackwell", "flavor": "proprietary"},
        "the proprietary kernel module does not drive {architecture} GPUs",
        "Install the open kernel modules (nvidia-open).",
        "NVIDIA driver documentation: open kernel modules are required from Blackwell on",
    ),
    Incompatibility(
        "driver_without_volta",
        {"architecture": "volta", "driver": ">=590"},
        "driver {driver} no longer drives {architecture} GPUs",
        "Use a driver of the 580 branch, the last one for Maxwell, Pascal and Volta.",
        "NVIDIA driver release notes",
    ),
    Incompatibility(
        "containerd_without_cdi",
        {"containerd": "<1.7"},
        "containerd {containerd} cannot hand out devices by CDI",
        "Use containerd 1.7 or newer.",
        "containerd release notes",
    ),
)

_LIBRARY_FOLDERS = (
    "/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/run/nvidia/driver/usr/lib/*-linux-gnu", "/run/nvidia/driver/usr/lib64",
)  # fmt: skip

_READING = Reading(
    information="/proc/driver/nvidia/gpus/{pci}/information",
    uuid_key="GPU UUID",
    minor_key="Device Minor",
    model_key="Model",
    device_node="/dev/nvidia{minor}",
    version_files=("/sys/module/{driver}/version", "/proc/driver/nvidia/version"),
    tool_columns=("", "uuid", "pci_address", "model", "memory_mib", "driver_version"),
    missing_nodes_hint="Run nvidia-modprobe -u -c=0, or enable nvidia-persistenced.",
    # Older tools do not know these fields and refuse the whole question, so it is one of its own.
    tool_details=ToolTable(
        (
            "nvidia-smi",
            "--query-gpu=pci.bus_id,compute_cap,mig.mode.current,ecc.mode.current",
            "--format=csv,noheader,nounits",
        ),
        ("pci_address", "capability", "mig_mode", "ecc"),
    ),
    tool_instances=("nvidia-smi", "-L"),
    tool_peers=("nvidia-smi", "topo", "-m"),
    tool_mismatch=r"library version mismatch(?:\s+NVML library version: (?P<version>[\d.]+))?",
    instances="/proc/driver/nvidia/capabilities/gpu{minor}/mig",
    flavor_file="/proc/driver/nvidia/version",
    flavors={"open": "Open Kernel Module", "proprietary": "Kernel Module"},
    library_links=tuple(f"{folder}/libnvidia-ml.so.1" for folder in _LIBRARY_FOLDERS),
    userspace_must_match=True,
    kernel_messages=(
        KernelMessage(
            r"NVRM: Xid \(PCI:(?P<address>[0-9a-fA-F:.]+)\): (?P<detail>\d+)",
            "Xid ",
            "Look the number up among NVIDIA's Xid errors; drain the node and reset the GPU or reboot.",
            ignored=("13", "31", "43", "45", "68", "109"),
        ),
        KernelMessage(
            r"NVRM: GPU (?P<address>[0-9a-fA-F:.]+): (?P<detail>RmInitAdapter failed|GPU has fallen off the bus)",
            "",
            "Power the node off and on; look at the slot and the power supply.",
        ),
    ),
)

VENDOR = Vendor(
    name="nvidia",
    title="NVIDIA",
    pci_vendor_id="10de",
    models=_MODELS,
    resources={"nvidia": "nvidia.com/gpu"},
    device_id_pattern=r"^(?P<key>GPU-[0-9a-f-]+)(?:::\d+)?$",
    device_id_fact="uuid",
    device_globs=("/dev/nvidia[0-9]*",),
    control_nodes=("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"),
    required_nodes=("/dev/nvidiactl", "/dev/nvidia-uvm"),
    node_label="nvidia.com/gpu.present",
    foreign_drivers=("nouveau", "vfio-pci"),
    tool=("nvidia-smi", "--query-gpu=index,uuid,pci.bus_id,name,memory.total,driver_version", "--format=csv,noheader,nounits"),
    visible_env="NVIDIA_VISIBLE_DEVICES",
    visible_by_runtime=("void",),  # specifications that nvidia-ctk generates set it
    stale_resource_prefix="nvidia.com/",
    reading=_READING,
    plugin=DevicePlugin(
        name="nvidia-device-plugin",
        image="nvcr.io/nvidia/k8s-device-plugin",
        version="v0.20.1",
        socket="nvidia-*.sock",
        # Without the vendor's container runtime the plugin finds libnvidia-ml below the driver root,
        # and only a privileged pod may open the control nodes that the library needs.
        privileged=True,
        host_paths=(
            HostPath("device-plugins", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/device-plugins", read_only=False),
            HostPath("driver-root", "/", "/driver-root"),
        ),
        environment={"NVIDIA_MIG_MONITOR_DEVICES": "all"},
        tolerations=({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
        options={
            "pass_device_specs": PluginOption("--pass-device-specs={value}", "bool", default="true"),
            "driver_root": PluginOption("--nvidia-driver-root={value}", default="/"),
            "driver_root_in_container": PluginOption("--container-driver-root={value}", default="/driver-root"),
            "fail_on_init_error": PluginOption("--fail-on-init-error={value}", "bool"),
            "mig_strategy": PluginOption("--mig-strategy={value}", choices=("none", "single", "mixed")),
            "device_list_strategy": PluginOption(
                "--device-list-strategy={value}", choices=("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
            ),
            "device_id_strategy": PluginOption("--device-id-strategy={value}", choices=("uuid", "index")),
        },
    ),
    user_space=_USER_SPACE,
    incompatibilities=_INCOMPATIBILITIES,
)
