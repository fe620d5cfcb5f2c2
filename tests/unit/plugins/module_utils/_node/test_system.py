# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is offered and what is left out, drivers and the system below them, and the kernel's log."""

from __future__ import annotations

import errno
import os

import pytest

from ansible_collections.gpuops.k8s.plugins.module_utils._node.collect import collect
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root
from tests.fixtures.node_tree import NodeTree

UUID = "GPU-11111111-2222-3333-4444-55555555555"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.fixture
def tree(tmp_path):
    return NodeTree(tmp_path)


def facts(tree, **more):
    return collect(str(tree.root), **more)


def codes(found):
    return sorted(problem["code"] for problem in found["problems"])


def virtual(tree, address, parent, device="2330", vendor="10de", driver=""):
    folder = tree.function(address, vendor, device, "030200" if vendor == "10de" else "038000", driver)
    (tree.root / folder / "physfn").symlink_to(f"../{parent}")
    return folder


def excluded(found):
    return {gpu["pci_address"]: gpu["excluded"] for gpu in found["excluded_gpus"]}


@pytest.mark.parametrize("driver", ["vfio-pci", "nvidia-vgpu-vfio-pci", "nvidia_vgpu_vfio_pci"])
def test_gpu_kept_for_virtual_machines_is_listed_and_not_counted(tree, driver):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    tree.function("0000:1c:00.0", "10de", "2330", driver=driver)
    found = facts(tree)
    assert (found["count"], found["resources"], found["runtime"]) == (1, {"nvidia.com/gpu": 1}, {"nvidia": True})
    assert excluded(found) == {"0000:1c:00.0": "vfio"}
    assert codes(found) == ["vfio_bound"]
    assert driver in found["problems"][0]["message"]


def test_node_whose_gpus_are_all_kept_for_virtual_machines_offers_none(tree):
    tree.function("0000:1c:00.0", "10de", "2330", driver="vfio-pci")
    found = facts(tree)
    assert (found["count"], found["vendors"], found["resources"], found["runtime"]) == (0, [], {}, {})
    assert found["excluded_gpus"][0]["model"] == "H100 SXM5 80GB"


def test_gpu_with_virtual_functions_in_use_is_not_counted_beside_them(tree):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    virtual(tree, "0000:0c:00.4", "0000:0c:00.0", driver="vfio-pci")
    virtual(tree, "0000:0c:00.5", "0000:0c:00.0")
    found = facts(tree)
    assert found["count"] == 0
    assert excluded(found) == {"0000:0c:00.0": "divided", "0000:0c:00.4": "vfio"}
    assert codes(found) == []


@pytest.mark.parametrize(("driver", "count"), [("i915", 1), ("xe", 1), ("", 0)])
def test_plugin_that_drops_a_divided_gpu_whether_its_functions_serve_or_not(tree, driver, count):
    tree.intel("0000:4d:00.0", 0, 128)
    folder = virtual(tree, "0000:4d:00.1", "0000:4d:00.0", "56c0", "8086", driver)
    tree.drm(folder, 1, 129)
    found = facts(tree)
    assert found["count"] == count
    assert excluded(found) == {"0000:4d:00.0": "divided"}


def test_virtual_function_in_a_virtual_machine_is_a_gpu(tree):
    folder = tree.function("0000:05:00.0", "1002", "74b5", "120000", driver="amdgpu", numa=-1)
    tree.drm(folder, 0, 128)
    tree.device("/dev/kfd")
    gpu = facts(tree)["gpus"][0]
    assert (gpu["model"], gpu["virtual_function"], gpu["numa_node"]) == ("Instinct MI300X VF", False, -1)


@pytest.mark.parametrize(("device", "integrated"), [("7d67", True), ("ffff", True), ("56c0", False)])
def test_place_of_the_processors_gpu_tells_unknown_ones(tree, device, integrated):
    tree.intel("0000:00:02.0", 0, 128, device=device)
    found = facts(tree)
    assert found["count"] == (0 if integrated else 1)
    assert facts(tree, include_integrated=True)["resources"] == {"gpu.intel.com/i915": 1}


@pytest.mark.parametrize(("neighbour", "count"), [("108000", 0), ("040300", 1)])
def test_neighbours_of_the_processors_gpu_tell_unknown_ones(tree, neighbour, count):
    folder = tree.function("0000:0e:00.0", "1002", "ffff", "030000", driver="amdgpu")
    tree.drm(folder, 0, 128)
    tree.device("/dev/kfd")
    tree.function("0000:0e:00.2", "1022", "1649", neighbour)
    found = facts(tree)
    assert found["count"] == count
    assert codes(found) == ["model_unknown"]


def test_accelerators_that_are_no_gpus(tree):
    tree.function("0000:00:0b.0", "8086", "7d1d", "120000", "intel_vpu")
    tree.function("0000:5e:00.0", "10ee", "5000", "120000", "xocl")
    found = facts(tree)
    assert (found["gpus"], found["excluded_gpus"], found["displays"]) == ([], [], [])


@pytest.mark.parametrize(
    ("vendor", "kind", "model"),
    [("1a03", "bmc", "ASPEED 2000"), ("1234", "virtual", "QEMU 2000"), ("5333", "other", "unknown 5333:2000")],
)
def test_displays_are_named(tree, vendor, kind, model):
    tree.function("0000:03:00.0", vendor, "2000", "030000", "ast")
    [display] = facts(tree)["displays"]
    assert (display["kind"], display["model"], display["driver"]) == (kind, model, "ast")


def library(tree, version):
    folder = tree.root / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{version}")


@pytest.mark.parametrize(("version", "mismatch"), [("580.95.05", False), ("580.126.09", True), ("570.133", True)])
def test_user_space_of_another_version(tree, version, mismatch):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    library(tree, version)
    found = facts(tree)
    assert found["drivers"]["nvidia"]["userspace_version"] == version
    assert found["drivers"]["nvidia"]["mismatch"] is mismatch
    assert codes(found) == (["driver_library_mismatch"] if mismatch else [])


def test_user_space_that_may_be_of_another_version(tree):
    tree.amd("0000:0c:00.0", 0, 128)
    tree.write("/sys/module/amdgpu/version", "6.14.14")
    tree.write("/opt/rocm/.info/version", "7.0.2-56")
    driver = facts(tree)["drivers"]["amd"]
    assert driver == {
        "module": "amdgpu", "version": "6.14.14", "userspace_version": "7.0.2", "mismatch": False, "flavor": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "flavor"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build", "open"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Thu Jun  5", "proprietary"),
        ("rubbish", ""),
    ],
)
def test_flavor_of_the_kernel_module(tree, text, flavor):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    tree.write("/proc/driver/nvidia/version", text)
    found = facts(tree)
    assert found["drivers"]["nvidia"]["flavor"] == found["gpus"][0]["kernel_module_flavor"] == flavor


@pytest.mark.parametrize(
    ("value", "secured"), [(b"\x06\x00\x00\x00\x01", True), (b"\x06\x00\x00\x00\x00", False), (b"\x06", None), (None, None)]
)
def test_secure_boot(tree, value, secured):
    tree.function("0000:0c:00.0", "10de", "2330")
    (tree.root / SECURE_BOOT).parent.mkdir(parents=True)
    if value is not None:
        (tree.root / SECURE_BOOT).write_bytes(value)
    found = facts(tree)
    assert found["secure_boot"] is secured
    assert codes(found) == (["driver_missing", "secure_boot"] if secured else ["driver_missing"])


def test_secure_boot_is_no_trouble_where_the_driver_is_loaded(tree):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    (tree.root / SECURE_BOOT).parent.mkdir(parents=True)
    (tree.root / SECURE_BOOT).write_bytes(b"\x06\x00\x00\x00\x01")
    found = facts(tree)
    assert (found["secure_boot"], codes(found)) == (True, [])


@pytest.mark.parametrize(
    ("installed", "pending"),
    [(["6.12.1-amd64"], False), (["6.12.2-amd64"], True), (["6.12.1-amd64", "6.12.2-amd64"], False), ([], False)],
)
def test_kernel_whose_modules_are_gone(tree, installed, pending):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    tree.write("/proc/sys/kernel/osrelease", "6.12.1-amd64")
    for name in installed:
        tree.write(f"/lib/modules/{name}/modules.dep")
    found = facts(tree)
    assert (found["reboot_pending"], codes(found)) == (pending, ["reboot_pending"] if pending else [])


def test_reboot_that_concerns_no_gpu_is_a_fact_and_no_problem(tree):
    tree.write("/run/reboot-required", "*** System restart required ***")
    found = facts(tree)
    assert (found["reboot_pending"], found["problems"]) == (True, [])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("3,1,2,-;NVRM: Xid (PCI:0000:0c:00): 79, pid=1, GPU has fallen off the bus.", "Xid 79"),
        ("3,1,2,-;NVRM: Xid (PCI:0000:0C:00.0): 94, Contained: SM", "Xid 94"),
        ("3,1,2,-;NVRM: Xid (PCI:0000:0c:00): 31, pid=4, MMU Fault", ""),
        ("3,1,2,-;NVRM: Xid (PCI:0000:0d:00): 79, another GPU", ""),
        ("3,1,2,-;NVRM: GPU 0000:0c:00.0: RmInitAdapter failed! (0x62)", "RmInitAdapter failed"),
    ],
)
def test_trouble_in_the_kernels_log(tree, line, told):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    tree.write("/dev/kmsg", line)
    found = facts(tree)
    assert codes(found) == (["kernel_errors"] if told else [])
    assert all(told in problem["message"] for problem in found["problems"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("4,1,2,-;amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!", "GPU reset"),
        ("4,1,2,-;amdgpu 0000:0c:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1", "ring gfx_0.0.0 timeout"),
    ],
)
def test_trouble_of_another_vendor(tree, line, told):
    tree.amd("0000:0c:00.0", 0, 128)
    tree.write("/dev/kmsg", line)
    assert told in facts(tree)["problems"][0]["message"]


def test_what_may_not_be_read_is_told(tree, monkeypatch):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    tree.write("/dev/kmsg", "3,1,2,-;NVRM: Xid (PCI:0000:0c:00): 79, x")
    real_open = os.open

    def refuse(path, *arguments, **more):
        if str(path).endswith("/dev/kmsg"):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return real_open(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)
    found = facts(tree)
    assert codes(found) == []
    assert {"subject": "/dev/kmsg", "reason": "Operation not permitted"} in found["left_out"]


def test_files_that_vanish_while_they_are_read(tree, monkeypatch):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    tree.function("0000:1c:00.0", "10de", "2330")
    real_read = os.read

    def vanish(handle, size):
        if "0000:1c:00.0/device" in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENODEV, "No such device")
        return real_read(handle, size)

    monkeypatch.setattr(os, "read", vanish)
    found = facts(tree)
    assert [(gpu["pci_address"], gpu["model"]) for gpu in found["gpus"]] == [
        ("0000:0c:00.0", "H100 SXM5 80GB"), ("0000:1c:00.0", "unknown 10de:"),
    ]  # fmt: skip
    assert [entry for entry in found["left_out"] if "1c:00.0" in entry["subject"]] == []


@pytest.mark.parametrize(("text", "number"), [("17", 17), ("0x10", 16), ("", None), ("x", None), ("²", None), ("1 2", None)])
def test_numbers(tmp_path, text, number):
    (tmp_path / "file").write_text(text)
    assert Root(str(tmp_path)).number("/file") == number


def test_file_that_has_no_end_is_read_in_part(tmp_path, monkeypatch):
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert len(Root(str(tmp_path)).read_bytes("/zero")) <= 4 * 1024**2


def test_compute_memory_of_the_topology_where_the_driver_tells_none(tree):
    folder = tree.amd("0000:0c:00.0", 0, 128)
    os.unlink(tree.root / folder / "mem_info_vram_total")
    tree.write("/sys/class/kfd/kfd/topology/nodes/128/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 1024")
    tree.write("/sys/class/kfd/kfd/topology/nodes/128/mem_banks/1/properties", "heap_type 1\nsize_in_bytes 512")
    gpu = facts(tree)["gpus"][0]
    assert (gpu["memory_bytes"], gpu["memory_source"]) == (1536, "driver")


def test_memory_in_hexadecimal(tree):
    folder = tree.intel("0000:4d:00.0", 0, 128, driver="xe", device="e20b")
    tree.write(f"{folder}/tile0/physical_vram_size_bytes", "0x300000000")
    gpu = facts(tree)["gpus"][0]
    assert (gpu["memory_bytes"], gpu["memory_source"]) == (12 * 1024**3, "driver")


def test_gpu_that_is_held_and_cannot_compute(tree):
    tree.amd("0000:0c:00.0", 0, 128)
    folder = tree.function("0000:1c:00.0", "1002", "738c", "038000", driver="amdgpu")
    tree.drm(folder, 1, 129)
    found = facts(tree)
    assert [(problem["code"], problem["subject"]) for problem in found["problems"]] == [("compute_missing", "0000:1c:00.0")]


def test_partitions_that_only_the_topology_knows(tree):
    tree.amd("0000:0c:00.0", 0, 128, partitions=[(0, 1, 129)])
    assert codes(facts(tree)) == []
    (tree.root / "sys/devices/platform/amdgpu_xcp_0").rename(tree.root / "sys/devices/platform/amdgpu_part_0")
    found = facts(tree)
    assert codes(found) == ["partitions_differ"]
    assert "2 partitions in the topology, 1 in sysfs" in found["problems"][0]["message"]
