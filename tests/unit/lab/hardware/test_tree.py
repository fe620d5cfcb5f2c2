# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The trees that stand for a machine, read as the programs of a node read them."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops_lab.hardware import catalogue, drm, nvidia_library, pci, tree
from gpuops_lab.paths import cache

GPU_CLASSES = ("0300", "0302", "0380", "1200")
IS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="module", params=catalogue.names())
def machine(request):
    return catalogue.load(request.param)


@pytest.fixture(scope="module")
def written(machine, tmp_path_factory):
    """The machine's trees, written once and only read by the tests that share them."""
    folder = tmp_path_factory.mktemp("tree")
    tree.write(machine, folder)
    return folder


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def test_all_links_lead_somewhere_inside(machine, written):
    root = (written / "sys").resolve()
    common = root / "dev/char"
    for folder, names, files in os.walk(root):
        for name in names + files:
            path = Path(folder, name)
            if path.is_symlink() and path.parent != common:
                assert path.exists(), path
                assert root in path.resolve().parents, path


def test_pci_functions_by_class(machine, written):
    devices = written / "sys/bus/pci/devices"
    assert sorted(os.listdir(devices)) == [function.address for function in machine.functions]
    vendors = {"10de", "1002", "8086"}
    gpus = [
        name
        for name in sorted(os.listdir(devices))
        if text(devices / name / "class")[2:6] in GPU_CLASSES and text(devices / name / "vendor")[2:] in vendors
    ]
    assert gpus == [gpu.address for gpu in machine.gpus]


def test_attributes_and_configuration_space_agree(machine, written):
    for function in machine.functions:
        folder = written / "sys/bus/pci/devices" / function.address
        space = (folder / "config").read_bytes()
        assert len(space) == pci.CONFIG_BYTES
        vendor, device = struct.unpack_from("<HH", space, 0)
        assert f"0x{vendor:04x}" == text(folder / "vendor")
        assert f"0x{device:04x}" == text(folder / "device")
        assert space[0x0B] == int(text(folder / "class")[2:4], 16)
        assert len(text(folder / "resource").splitlines()) == 13
        assert int(text(folder / "numa_node")) == function.numa_node
        assert (folder / "driver").exists() == bool(function.driver)
        if function.driver:
            assert os.path.basename(os.path.realpath(folder / "driver")) == function.driver
            assert (written / "sys/bus/pci/drivers" / function.driver / function.address).exists()
        if function.is_bridge:
            assert space[0x19] == min(other.bus for other in machine.functions if other.parent == function.address)


def test_drm_cards_lead_to_their_devices(machine, written):
    for device in drm.devices(machine):
        for name, minor in drm.node_names(device).items():
            link = written / "sys/class/drm" / name
            assert os.path.basename(os.path.realpath(link / "device")) == device.parent
            assert (link / "device/drm" / name).is_dir()
            assert text(link / "dev") == f"226:{minor}"
            assert os.path.realpath(written / f"sys/dev/char/226:{minor}") == os.path.realpath(link)


def test_device_nodes_are_complete_and_openable(machine, written):
    entries = json.loads((written / "device_nodes.json").read_text())
    paths = [entry["path"] for entry in entries]
    assert len(set(paths)) == len(paths)
    for entry in entries:
        if "link" in entry:
            target = os.path.normpath(f"{os.path.dirname(entry['path'])}/{entry['link']}")
            assert target in paths
        else:
            assert (entry["major"], entry["minor"], entry["mode"]) == (1, 3, "0666")
    for gpu in machine.of("nvidia"):
        assert f"/dev/nvidia{gpu.minor}" in paths
    assert ("/dev/nvidiactl" in paths) == bool(machine.of("nvidia"))
    assert ("/dev/kfd" in paths) == bool(machine.of("amd"))
    assert ("/dev/dri/card0" in paths) == bool(drm.devices(machine))


def test_nvidia_information(machine, written):
    folder = written / "proc/driver/nvidia/gpus"
    if not machine.of("nvidia"):
        assert not folder.exists()
        assert (written / "proc/driver").is_dir()
        return
    assert sorted(os.listdir(folder)) == [gpu.address for gpu in machine.of("nvidia")]
    for gpu in machine.of("nvidia"):
        facts = dict(line.split(":", 1) for line in (folder / gpu.address / "information").read_text().splitlines())
        values = {key: value.strip() for key, value in facts.items()}
        assert values["GPU UUID"] == gpu.uuid
        assert values["Bus Location"] == gpu.address
        assert values["Device Minor"] == str(gpu.minor)
        assert values["Model"] == gpu.product
        assert gpu.driver_version in text(written / "proc/driver/nvidia/version")


def test_compute_topology(machine, written):
    nodes = written / "sys/class/kfd/kfd/topology/nodes"
    if not machine.of("amd"):
        assert not (written / "sys/class/kfd").is_dir()
        return
    minors, units = [], []
    for node in nodes.iterdir():
        values = dict(line.split() for line in text(node / "properties").splitlines())
        if values["cpu_cores_count"] != "0":
            continue
        minors.append(int(values["drm_render_minor"]))
        units.append((int(values["domain"]), int(values["location_id"])))
        assert int(values["simd_count"]) > 0
        assert int(text(node / "mem_banks/0/properties").split("size_in_bytes ")[1].split()[0]) > 0
        for link in (node / "io_links").iterdir():
            facts = dict(line.split() for line in text(link / "properties").splitlines())
            assert facts["node_from"] == node.name
            assert (nodes / facts["node_to"]).is_dir()
    expected = [d.render for gpu in machine.of("amd") for d in (gpu.drm, *(p.drm for p in gpu.partitions))]
    assert sorted(minors) == sorted(expected)
    assert len(set(units)) == len(machine.of("amd"))


def test_partitions_of_one_gpu_share_its_location(tmp_path):
    machine = catalogue.load("mi300x-8-cpx-nps4")
    tree.write(machine, tmp_path)
    parts = sorted((tmp_path / "sys/devices/platform").glob("amdgpu_xcp_*"))
    assert len(parts) == 8 * 7
    folder = tmp_path / "sys/module/amdgpu/drivers/pci:amdgpu/0000:0c:00.0"
    assert text(folder / "current_compute_partition") == "CPX"
    assert text(folder / "current_memory_partition") == "NPS4"
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    locations = [line for node in nodes.iterdir() for line in text(node / "properties").splitlines() if "location_id" in line]
    assert locations.count(f"location_id {0x0C << 8}") == 8


def test_kernel_modules(machine, written):
    listed = [line.split()[0] for line in (written / "proc/modules").read_text().splitlines()]
    for name, version in machine.modules:
        assert name in listed
        folder = written / "sys/module" / name
        assert (folder / "version").exists() == bool(version)
        assert text(folder / "initstate") == "live"
    for driver in {gpu.function.driver for gpu in machine.gpus}:
        assert (written / f"sys/module/{driver}/drivers/pci:{driver}/{machine.gpus[0].address}").exists() or len(
            {gpu.function.driver for gpu in machine.gpus}
        ) > 1


@pytest.mark.skipif(not IS_ROOT, reason="overlay marks need root")
def test_host_devices_are_hidden(machine, written):
    for path in ("bus/pci", "class/drm", "devices/pci0000:00", "dev/char"):
        assert os.getxattr(written / "sys" / path, "trusted.overlay.opaque") == b"y", path


def test_writing_again_replaces_everything(tmp_path):
    tree.write(catalogue.load("mi300x-8-cpx-nps4"), tmp_path)
    tree.write(catalogue.load("l4-2"), tmp_path)
    assert not (tmp_path / "sys/class/kfd").is_dir()
    assert len(os.listdir(tmp_path / "proc/driver/nvidia/gpus")) == 2
    assert not (tmp_path / "root/usr/bin/rocm-smi").exists()


def lspci() -> tuple[list[str], dict[str, str]] | None:
    """Debian's lspci: this machine's, else that of a cached node tree."""
    if shutil.which("lspci"):
        return ["lspci"], {}
    for root in sorted((cache() / "trees").glob("*")):
        if (root / "usr/bin/lspci").is_file():
            library = root / "usr/lib/x86_64-linux-gnu"
            return [str(root / "usr/bin/lspci"), "-i", str(root / "usr/share/misc/pci.ids")], {"LD_LIBRARY_PATH": str(library)}
    return None


def test_real_lspci_reads_the_tree(machine, written):
    tool = lspci()
    if tool is None:
        pytest.skip("no lspci on this machine nor in a cached node tree")
    command, environment = tool
    done = subprocess.run(
        [*command, "-O", f"sysfs.path={written / 'sys/bus/pci'}", "-D", "-n"],
        capture_output=True, text=True, env={**os.environ, **environment}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    seen = [(line[0], line[1].rstrip(":"), line[2]) for line in lines]
    assert seen == [(f.address, f.class_code[:4], f"{f.vendor}:{f.device}") for f in machine.functions]


def run_tool(written: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a simulated vendor tool on the written tree as if it were a node's root."""
    root = written / "node"
    if not root.exists():
        shutil.copytree(written / "root", root, symlinks=True)
        for part in ("sys", "proc"):
            (root / part).symlink_to(written / part)
        for entry in json.loads((written / "device_nodes.json").read_text()):
            path = root / entry["path"].lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            if "link" not in entry:
                path.touch()
    return subprocess.run(
        [sys.executable, str(root / "usr/bin" / name), *arguments],
        capture_output=True, text=True, env={"GPUOPS_ROOT": str(root)}, check=False,
    )  # fmt: skip


def test_nvidia_smi(tmp_path):
    machine = catalogue.load("h100-4")
    tree.write(machine, tmp_path)
    fields = "index,uuid,pci.bus_id,name,memory.total,driver_version"
    done = run_tool(tmp_path, "nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    assert done.returncode == 0
    rows = [line.split(", ") for line in done.stdout.splitlines()]
    assert [row[1] for row in rows] == [gpu.uuid for gpu in machine.gpus]
    assert rows[0] == ["0", machine.gpus[0].uuid, "00000000:19:00.0", "NVIDIA H100 80GB HBM3", "81559", "580.95.05"]
    assert "UUID: GPU-" in run_tool(tmp_path, "nvidia-smi", "-L").stdout
    assert run_tool(tmp_path, "nvidia-smi", "--query-gpu=nosuch", "--format=csv").returncode == 2
    (tmp_path / "node/dev/nvidia2").unlink()
    assert len(run_tool(tmp_path, "nvidia-smi", "-L").stdout.splitlines()) == 3
    (tmp_path / "node/dev/nvidiactl").unlink()
    broken = run_tool(tmp_path, "nvidia-smi", "-L")
    assert broken.returncode == 9
    assert "couldn't communicate with the NVIDIA driver" in broken.stdout


def test_rocm_smi_and_amd_smi(tmp_path):
    machine = catalogue.load("mi210-4")
    tree.write(machine, tmp_path)
    done = run_tool(tmp_path, "rocm-smi", "--showid")
    assert done.returncode == 0
    assert done.stdout.count("Device ID") == 4
    document = json.loads(run_tool(tmp_path, "rocm-smi", "--showmeminfo", "vram", "--json").stdout)
    assert document["card0"]["VRAM Total Memory (B)"] == str(machine.gpus[0].memory_bytes)
    listed = json.loads(run_tool(tmp_path, "amd-smi", "list", "--json").stdout)
    assert [entry["bdf"] for entry in listed] == [gpu.address for gpu in machine.gpus]
    assert run_tool(tmp_path, "rocm-smi", "--nosuch").returncode == 2
    (tmp_path / "node/dev/kfd").unlink()
    assert run_tool(tmp_path, "rocm-smi", "--showid").returncode == 1


def test_xpu_smi(tmp_path):
    machine = catalogue.load("flex-170-2")
    tree.write(machine, tmp_path)
    done = run_tool(tmp_path, "xpu-smi", "discovery", "--dump", "1,2,3")
    assert done.stdout.splitlines()[1] == '0,"Intel Data Center GPU Flex 170","Intel(R) Corporation"'
    assert len(done.stdout.splitlines()) == 3
    (tmp_path / "node/dev/dri/card1").unlink()
    assert len(run_tool(tmp_path, "xpu-smi", "discovery", "--dump", "1").stdout.splitlines()) == 2


def test_simulated_nvidia_library(tmp_path):
    """Loaded from the node's root in a process of its own, as a device plugin loads it."""
    machine = catalogue.load("l4-2")
    tree.write(machine, tmp_path)
    if nvidia_library.compiled() is None:
        pytest.skip("no C compiler on this machine")
    run_tool(tmp_path, "nvidia-smi", "-L")  # makes the node's root
    library = tmp_path / "node" / nvidia_library.library_folder() / "libnvidia-ml.so.1"
    assert library.resolve().name == "libnvidia-ml.so.580.95.05"
    script = """
import ctypes, sys
nvml = ctypes.CDLL(sys.argv[1])
nvml.nvmlErrorString.restype = ctypes.c_char_p
code = nvml.nvmlInit_v2()
if code: sys.exit(nvml.nvmlErrorString(code).decode())
count = ctypes.c_uint(); nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
for index in range(count.value):
    gpu = ctypes.c_void_p(); assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu)) == 0
    texts = []
    for call in (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetName):
        text = ctypes.create_string_buffer(96); assert call(gpu, text, 96) == 0; texts.append(text.value.decode())
    memory = (ctypes.c_ulonglong * 3)(); assert nvml.nvmlDeviceGetMemoryInfo(gpu, memory) == 0
    minor = ctypes.c_uint(); assert nvml.nvmlDeviceGetMinorNumber(gpu, ctypes.byref(minor)) == 0
    print(*texts, memory[0], minor.value, sep="|")
"""
    call = [sys.executable, "-c", script, str(library)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env={})
    expected = [f"{gpu.uuid}|{gpu.product}|{gpu.memory_bytes}|{gpu.minor}" for gpu in machine.gpus]
    assert done.stdout.splitlines() == expected, done.stderr
    (tmp_path / "node/dev/nvidiactl").unlink()
    broken = subprocess.run(call, capture_output=True, text=True, check=False, env={})
    assert (broken.returncode, broken.stderr.strip()) == (1, "Driver Not Loaded")
