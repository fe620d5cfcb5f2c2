# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU facts from small trees: what counts, what it adds, and what stands in its way."""

from __future__ import annotations

import os
import stat
import time

import pytest

from ansible_collections.gpuops.k8s.plugins.module_utils._node import tools
from ansible_collections.gpuops.k8s.plugins.module_utils._node.collect import collect
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import DevicePlugin, Model, Reading, Vendor
from tests.fixtures.node_tree import NodeTree

UUID = "GPU-11111111-2222-3333-4444-55555555555"


@pytest.fixture
def tree(tmp_path):
    return NodeTree(tmp_path)


def facts(tree, **more):
    return collect(str(tree.root), **more)


def codes(found):
    return sorted(problem["code"] for problem in found["problems"])


def test_nvidia(tree):
    tree.nvidia("0000:1c:00.0", 1, UUID + "1", numa=1)
    tree.nvidia("0000:0c:00.0", 0, UUID + "0")
    found = facts(tree)
    assert found["resources"] == {"nvidia.com/gpu": 2}
    assert found["runtime"] == {"nvidia": True}
    assert found["problems"] == []
    first, second = found["gpus"]
    assert first == {
        "vendor": "nvidia", "pci_address": "0000:0c:00.0", "vendor_id": "10de", "device_id": "2330", "model": "H100 SXM5 80GB",
        "memory_bytes": 80 * 1024**3, "memory_source": "nominal", "architecture": "hopper", "driver": "nvidia",
        "driver_version": "580.95.05", "numa_node": 0, "index": 0, "uuid": UUID + "0", "card": "",
        "device_nodes": ["/dev/nvidia0"], "render_node": "", "partitions": [], "partition_nodes": {},
        "device_numbers": {}, "state": "ready",
        "ready": True, "resource": "nvidia.com/gpu", "capability": "9.0", "integrated": False, "virtual_function": False,
        "physical_function": "", "virtual_functions": 0, "excluded": "", "kernel_module_flavor": "", "mig_mode": "",
        "mig_devices": [], "compute_partition_mode": "", "memory_partition_mode": "", "ecc": "", "peers": [],
    }  # fmt: skip
    assert (second["index"], second["numa_node"], second["device_nodes"]) == (1, 1, ["/dev/nvidia1"])


def test_nvidia_with_its_own_drm_card_is_still_opened_by_minor(tree):
    folder = tree.nvidia("0000:0c:00.0", 0, UUID)
    tree.drm(folder, 1, 128)
    gpu = facts(tree)["gpus"][0]
    assert (gpu["device_nodes"], gpu["card"], gpu["render_node"]) == (["/dev/nvidia0"], "card1", "/dev/dri/renderD128")


def test_amd(tree):
    tree.amd("0000:0c:00.0", 1, 128)
    gpu = facts(tree)["gpus"][0]
    assert (gpu["memory_bytes"], gpu["memory_source"]) == (192 * 1024**3 - 4096, "driver")
    assert gpu["device_nodes"] == ["/dev/dri/card1", "/dev/dri/renderD128"]
    assert (gpu["model"], gpu["resource"], gpu["ready"]) == ("Instinct MI300X", "amd.com/gpu", True)


def test_amd_partitions_belong_to_their_gpu(tree):
    tree.amd("0000:0c:00.0", 0, 128, partitions=[(0, 1, 129), (10, 2, 130), (9, 3, 131)])
    tree.amd("0000:1c:00.0", 4, 132, partitions=[(11, 5, 133)])
    found = facts(tree)
    assert [gpu["partitions"] for gpu in found["gpus"]] == [
        ["amdgpu_xcp_0", "amdgpu_xcp_9", "amdgpu_xcp_10"],
        ["amdgpu_xcp_11"],
    ]
    assert found["gpus"][0]["partition_nodes"]["amdgpu_xcp_9"] == ["/dev/dri/card3", "/dev/dri/renderD131"]
    assert found["resources"] == {"amd.com/gpu": 6}
    assert found["count"] == 2


def test_partition_that_no_gpu_owns_is_a_problem(tree):
    tree.amd("0000:0c:00.0", 0, 128)
    tree.drm("sys/devices/platform/amdgpu_xcp_0", 1, 129)
    assert codes(facts(tree)) == ["partition_without_gpu"]


@pytest.mark.parametrize(("driver", "resource"), [("i915", "gpu.intel.com/i915"), ("xe", "gpu.intel.com/xe")])
def test_intel_resource_is_that_of_the_bound_driver(tree, driver, resource):
    folder = tree.intel("0000:4d:00.0", 0, 128, driver=driver)
    tree.write(f"{folder}/drm/card0/lmem_total_bytes", str(14 * 1024**3))
    found = facts(tree)
    assert found["resources"] == {resource: 1}
    assert found["gpus"][0]["card"] == "card0"
    assert (found["gpus"][0]["memory_bytes"], found["gpus"][0]["memory_source"]) == (14 * 1024**3, "driver")


def test_only_gpu_functions_of_known_vendors_count(tree):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    tree.function("0000:0c:00.1", "10de", "22ba", "040300", "snd_hda_intel")
    tree.function("0000:0c:00.2", "10de", "1ad8", "0c0330", "xhci_hcd")
    tree.function("0000:01:00.0", "1a03", "2000", "030000", "ast")
    tree.function("0000:00:1f.0", "8086", "1234", "060100")
    tree.function("0000:02:00.0", "10de", "22a3", "068000", "nvidia-nvswitch")
    found = facts(tree)
    assert found["count"] == 1
    assert found["vendors"] == ["nvidia"]


def test_node_without_gpu_and_folder_without_anything(tree, tmp_path):
    found = facts(tree)
    assert (found["gpus"], found["resources"], found["runtime"], found["problems"]) == ([], {}, {}, [])
    assert codes(collect(str(tmp_path / "nothing"))) == ["pci_unreadable"]


@pytest.mark.parametrize(
    ("driver", "state", "code"),
    [
        ("", "no_driver", "driver_missing"),
        ("nouveau", "nouveau", "nouveau_bound"),
        ("other", "wrong_driver", "wrong_driver"),
    ],
)
def test_gpu_that_no_container_can_use(tree, driver, state, code):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    tree.function("0000:1c:00.0", "10de", "2330", driver=driver)
    found = facts(tree)
    gpu = found["gpus"][1]
    assert (gpu["state"], gpu["ready"], gpu["resource"]) == (state, False, "")
    assert found["count"] == 2
    assert found["resources"] == {"nvidia.com/gpu": 1}
    assert found["runtime"] == {"nvidia": False}
    assert codes(found) == [code]
    assert all(problem["message"] and problem["hint"] for problem in found["problems"])


def test_missing_device_node(tree):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    os.unlink(tree.root / "dev/nvidia0")
    found = facts(tree)
    assert (found["gpus"][0]["state"], codes(found), found["resources"]) == ("no_device_node", ["device_node_missing"], {})


@pytest.mark.parametrize("path", ["dev/nvidiactl", "dev/nvidia-uvm"])
def test_missing_node_that_all_gpus_share(tree, path):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    os.unlink(tree.root / path)
    found = facts(tree)
    assert (found["gpus"][0]["ready"], codes(found)) == (False, ["control_node_missing"])
    assert "nvidia-modprobe" in found["problems"][0]["hint"]


def test_gpu_that_the_driver_made_no_node_for(tree):
    tree.function("0000:0c:00.0", "1002", "74a1", "120000", driver="amdgpu")
    tree.device("/dev/kfd")
    assert codes(facts(tree)) == ["device_node_missing"]


def test_uuid_that_the_driver_does_not_tell_yet_comes_from_the_tool(tree):
    tree.nvidia("0000:0c:00.0", 0, "GPU-????????-????-????-????-????????????")
    assert codes(facts(tree)) == ["uuid_missing"]
    row = f"0, {UUID}, 00000000:0C:00.0, NVIDIA H100 80GB HBM3, 81559, 580.95.05\n"
    found = facts(tree, run_tool=lambda command, timeout: tools.ToolAnswer("ok", row))
    assert (found["gpus"][0]["uuid"], found["problems"]) == (UUID, [])
    assert (found["gpus"][0]["memory_bytes"], found["gpus"][0]["memory_source"]) == (81559 * 1024**2, "driver")
    assert found["sources"]["nvidia"] == "sysfs, nvidia-smi"


def test_two_gpus_with_one_uuid(tree):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    tree.nvidia("0000:1c:00.0", 1, UUID)
    assert codes(facts(tree)) == ["uuid_twice"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (tools.ToolAnswer("absent"), []),
        (tools.ToolAnswer("failed", detail="exit status 9: couldn't communicate with the driver"), ["tool_broken"]),
        (tools.ToolAnswer("slow", detail="no answer within 15 s"), ["tool_slow"]),
        (tools.ToolAnswer("ok", "garbage"), ["tool_counts_fewer"]),
    ],
)
def test_tool_that_is_no_help(tree, answer, expected):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    found = facts(tree, run_tool=lambda command, timeout: answer)
    assert codes(found) == expected
    assert found["gpus"][0]["ready"]


def test_unknown_model(tree):
    tree.function("0000:0c:00.0", "1002", "ffff", "030000", driver="amdgpu")
    tree.drm("sys/devices/pci0000:00/0000:0c:00.0", 0, 128)
    tree.device("/dev/kfd")
    found = facts(tree)
    assert (found["gpus"][0]["model"], codes(found)) == ("unknown 1002:ffff", ["model_unknown"])
    assert (found["gpus"][0]["memory_bytes"], found["gpus"][0]["memory_source"]) == (None, "unknown")
    tree.write("/usr/share/misc/pci.ids", "1001  Other\n\tffff  Wrong\n1002  AMD\n\tfffe  Also wrong\n\tffff  Navi 99\n")
    assert facts(tree)["gpus"][0]["model"] == "Navi 99"


def test_broken_files_are_left_out(tree):
    tree.function("0000:0c:00.0", "10de", "2330")
    tree.write("sys/devices/pci0000:00/0000:0c:00.0/class", "rubbish")
    tree.function("0000:1c:00.0", "10de", "2330", numa=None)
    (tree.root / "sys/bus/pci/devices/0000:2c:00.0").symlink_to("nowhere")
    found = facts(tree)
    assert [gpu["pci_address"] for gpu in found["gpus"]] == ["0000:1c:00.0"]
    assert found["gpus"][0]["numa_node"] == -1


def test_idle_virtual_function_is_no_gpu(tree):
    tree.nvidia("0000:0c:00.0", 0, UUID)
    folder = tree.function("0000:0c:00.4", "10de", "2330")
    (tree.root / folder / "physfn").symlink_to("../0000:0c:00.0")
    assert facts(tree)["count"] == 1


def test_vendor_that_is_one_record_and_nothing_else(tree):
    acme = Vendor(
        name="acme", title="Acme", pci_vendor_id="abcd", models={"0001": Model("One", 1024, "first")},
        resources={"acme": "acme.example/gpu"}, device_id_pattern=r"^(?P<key>.+)$", device_id_fact="pci_address",
        device_globs=("/dev/acme*",), control_nodes=("/dev/acmectl",), required_nodes=("/dev/acmectl",), node_label="acme/x",
        plugin=DevicePlugin("acme", "acme/plugin", "1", "acme.sock", (), {}),
        reading=Reading(information="/proc/acme/{pci}", minor_key="Number", device_node="/dev/acme{minor}"),
    )  # fmt: skip
    tree.function("0000:05:00.0", "abcd", "0001", "120000", "acme")
    tree.write("/proc/acme/0000:05:00.0", "Number: 7")
    tree.device("/dev/acme7", "/dev/acmectl")
    found = facts(tree, vendors=[acme])
    assert found["resources"] == {"acme.example/gpu": 1}
    assert found["gpus"][0]["device_nodes"] == ["/dev/acme7"]


def script(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(folder)


def test_running_tools(tmp_path):
    path = f"{script(tmp_path, 'good', 'echo hello')}:/usr/bin:/bin"
    script(tmp_path, "bad", "echo first >&2; echo driver not loaded >&2; exit 9")
    script(tmp_path, "hung", "sleep 30 & sleep 30")
    (tmp_path / "rubbish").write_bytes(b"\x7fnot a program")
    (tmp_path / "rubbish").chmod(0o755)
    assert tools.run(["good"], 5, path) == tools.ToolAnswer("ok", "hello\n")
    assert tools.run(["bad"], 5, path).detail == "exit status 9: first; driver not loaded"
    assert tools.run(["none-such"], 5, path).state == "absent"
    assert tools.run(["rubbish"], 5, path).state == "failed"
    began = time.monotonic()
    assert tools.run(["hung"], 0.3, path).state == "slow"
    assert time.monotonic() - began < 3


def test_live_system_asks_for_real_device_nodes():
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root

    assert Root("/").is_device("/dev/null")
    assert not Root("/").is_device("/etc/passwd")
