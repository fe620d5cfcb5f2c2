# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cdi_spec on the catalogue's machines, as Ansible calls it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._node import cdi_specs, writing
from ansible_collections.gpuops.k8s.plugins.module_utils._node.collect import collect
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root
from ansible_collections.gpuops.k8s.plugins.module_utils._node.tools import ToolAnswer
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS
from ansible_collections.gpuops.k8s.plugins.modules import cdi_spec
from tests.fixtures.machines import loader
from tests.fixtures.module_call import call

Json = dict[str, Any]
Capture = pytest.CaptureFixture[str]
AMD_FILE = "etc/cdi/gpuops-amd.json"


def _run(root: Path, capsys: Capture, vendor: str, **options: Any) -> Json:
    return call(cdi_spec.main, capsys, {"root": str(root), "vendor": vendor, "_ansible_diff": True, **options})


def _nodes(spec: Json) -> dict[str, list[str]]:
    return {one["name"]: [node["path"] for node in one["containerEdits"]["deviceNodes"]] for one in spec["devices"]}


@pytest.fixture
def mi210(tmp_path: Path) -> Path:
    loader.build("mi210-4", tmp_path)
    return tmp_path


def test_each_gpu_is_there_under_each_of_its_names(mi210: Path, capsys: Capture) -> None:
    result = _run(mi210, capsys, "amd")
    spec = json.loads((mi210 / AMD_FILE).read_text())
    gpus = collect(str(mi210), [VENDORS["amd"]])["gpus"]
    expected = {str(gpu[key]): gpu["device_nodes"] for gpu in gpus for key in ("index", "uuid", "pci_address")}
    everything = _nodes(spec)["all"]
    assert {name: nodes for name, nodes in _nodes(spec).items() if name != "all"} == expected
    assert len(expected) == 12
    assert everything == sorted(node for gpu in gpus for node in gpu["device_nodes"])
    assert spec["containerEdits"] == {"deviceNodes": [{"path": "/dev/kfd"}]}
    assert (spec["kind"], spec["cdiVersion"]) == ("amd.com/gpu", "0.5.0")
    assert (result["changed"], result["generator"], result["left_out"]) == (True, "builtin", [])
    assert result["diff"]["before"] == ""
    assert json.loads(result["diff"]["after"]) == spec
    assert (mi210 / AMD_FILE).stat().st_mode & 0o777 == 0o644


def test_a_second_run_changes_nothing_and_layout_does_not_count(mi210: Path, capsys: Capture) -> None:
    _run(mi210, capsys, "amd")
    file = mi210 / AMD_FILE
    file.write_text(json.dumps(json.loads(file.read_text())))
    before = file.read_bytes()
    assert _run(mi210, capsys, "amd")["changed"] is False
    assert file.read_bytes() == before


def test_a_stale_file_of_ours_is_replaced(mi210: Path, capsys: Capture) -> None:
    _run(mi210, capsys, "amd")
    gone = mi210 / "dev/dri/renderD128"
    gone.unlink()
    result = _run(mi210, capsys, "amd")
    assert result["changed"] is True
    assert len(result["left_out"]) == 1
    assert "/dev/dri/renderD128" not in (mi210 / AMD_FILE).read_text()


def test_check_mode_predicts_and_writes_nothing(mi210: Path, capsys: Capture) -> None:
    predicted = _run(mi210, capsys, "amd", _ansible_check_mode=True)
    assert predicted["changed"] is True
    assert not (mi210 / "etc/cdi").exists()
    assert _run(mi210, capsys, "amd")["diff"] == predicted["diff"]


def test_absent_removes_its_file_alone(mi210: Path, capsys: Capture) -> None:
    _run(mi210, capsys, "amd")
    other = mi210 / "etc/cdi/other.json"
    other.write_text("{")
    assert _run(mi210, capsys, "amd", state="absent")["changed"] is True
    assert os.listdir(mi210 / "etc/cdi") == ["other.json"]
    assert _run(mi210, capsys, "amd", state="absent")["changed"] is False


def test_partitions_are_devices_and_parts_of_their_gpu(tmp_path: Path, capsys: Capture) -> None:
    loader.build("mi300x-8-cpx-nps4", tmp_path)
    _run(tmp_path, capsys, "amd", naming=["pci_address"])
    nodes = _nodes(json.loads((tmp_path / AMD_FILE).read_text()))
    assert len(nodes) == 8 + 56 + 1
    assert nodes["amdgpu_xcp_0"] == ["/dev/dri/card8", "/dev/dri/renderD136"]
    assert len(nodes["0000:0c:00.0"]) == 2 * 8
    assert len(nodes["all"]) == 2 * 64


def test_the_version_is_chosen_by_content(mi210: Path, capsys: Capture, tmp_path: Path) -> None:
    assert _run(mi210, capsys, "amd", groups=[105])["version"] == "0.7.0"
    assert json.loads((mi210 / AMD_FILE).read_text())["containerEdits"]["additionalGids"] == [105]
    gpu = {
        "vendor": "intel",
        "pci_address": "0000:4d:00.0",
        "ready": True,
        "uuid": "GPU-1",
        "device_nodes": ["/dev/dri/card0"],
    }
    assert _run(mi210, capsys, "intel", gpus=[gpu], naming=["uuid"])["version"] == "0.3.0"


@pytest.mark.parametrize(
    ("machine", "vendor", "said"),
    [
        ("cpu-only", "nvidia", "no GPU is ready (none was found)"),
        ("cpu-only", "acme", "Looking for GPUs of acme: unknown vendor. Known vendors: nvidia, amd, intel."),
    ],
)
def test_nothing_to_hand_over_is_a_failure(tmp_path: Path, capsys: Capture, machine: str, vendor: str, said: str) -> None:
    loader.build(machine, tmp_path)
    result = _run(tmp_path, capsys, vendor)
    assert result["failed"] is True
    assert said in result["msg"]
    assert not (tmp_path / "etc/cdi").exists()


def test_gpus_divided_into_instances_need_the_program(tmp_path: Path, capsys: Capture) -> None:
    loader.build("a100-4-mig", tmp_path)
    gpus = loader.facts_of("a100-4-mig")["gpus"]
    divided = [gpu for gpu in gpus if gpu["mig_mode"] == "enabled"]
    assert "all GPUs are divided into instances. Install nvidia-ctk." in _run(tmp_path, capsys, "nvidia", gpus=divided)["msg"]
    left_out = _run(tmp_path, capsys, "nvidia", gpus=gpus)["left_out"]
    assert [entry["subject"] for entry in left_out] == [gpu["pci_address"] for gpu in divided]
    assert len(left_out) == 3


def test_a_missing_node_that_all_need_is_a_failure(mi210: Path, capsys: Capture) -> None:
    (mi210 / "dev/kfd").unlink()
    gpus = loader.facts_of("mi210-4")["gpus"]
    assert "/dev/kfd is not there" in _run(mi210, capsys, "amd", gpus=gpus)["msg"]


def test_an_entry_that_is_no_gpu_record_is_refused(mi210: Path, capsys: Capture) -> None:
    assert "an entry is no GPU record" in _run(mi210, capsys, "amd", gpus=[{"vendor": "amd"}])["msg"]


GOOD = {"cdiVersion": "0.3.0", "kind": "example.com/gpu", "devices": [
    {"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/kfd"}]}},
]}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "state"),
    [
        ("good.json", json.dumps(GOOD), "good"),
        ("good.yaml", "---\ncdiVersion: 0.3.0\nkind: example.com/gpu\ndevices:\n- path: /dev/kfd\n", "good"),
        ("cut.json", '{"cdiVersion": "0.3', "malformed"),
        ("list.json", "[]", "malformed"),
        ("empty.yaml", "", "malformed"),
        ("bytes.json", "\udcff", "malformed"),
        ("kind.json", json.dumps({**GOOD, "kind": "gpu"}), "malformed"),
        ("none.json", json.dumps({**GOOD, "devices": []}), "malformed"),
        ("twice.json", json.dumps({**GOOD, "devices": GOOD["devices"] * 2}), "malformed"),
        ("old.json", json.dumps({**GOOD, "containerEdits": {"additionalGids": [1]}}), "malformed"),
        ("gone.json", json.dumps(GOOD).replace("kfd", "gone"), "stale"),
        ("gone.yaml", "cdiVersion: 0.3.0\nkind: example.com/gpu\ndevices:\n- path: /dev/gone\n", "stale"),
        ("ours.json", json.dumps({**GOOD, "kind": "amd.com/gpu"}), "shadow"),
    ],
)
def test_specifications_of_others_are_reported_and_left(
    mi210: Path, capsys: Capture, name: str, text: str, state: str
) -> None:
    folder = mi210 / "var/run/cdi"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    result = _run(mi210, capsys, "amd")
    [spec] = result["specs"]
    assert (spec["path"], spec["state"], result["changed"]) == (f"/var/run/cdi/{name}", state, True)
    assert bool(spec["reason"]) is (state != "good")
    assert (folder / name).read_bytes() == text.encode("utf-8", "surrogateescape")


def test_the_same_kind_in_the_same_folder_is_refused(mi210: Path, capsys: Capture) -> None:
    (mi210 / "etc/cdi").mkdir(parents=True)
    (mi210 / "etc/cdi/amd.yaml").write_text("cdiVersion: 0.6.0\nkind: amd.com/gpu\n")
    result = _run(mi210, capsys, "amd")
    assert "/etc/cdi/amd.yaml has the kind amd.com/gpu too" in result["msg"]
    assert os.listdir(mi210 / "etc/cdi") == ["amd.yaml"]
    assert _run(mi210, capsys, "amd", path="/etc/cdi/amd.yaml")["changed"] is True


def test_a_link_is_refused(mi210: Path, capsys: Capture) -> None:
    target = mi210 / "target"
    target.write_text("kept")
    (mi210 / "etc/cdi").mkdir(parents=True)
    (mi210 / AMD_FILE).symlink_to(target)
    assert "it is a symbolic link" in _run(mi210, capsys, "amd")["msg"]
    assert target.read_text() == "kept"


def test_a_full_disk_leaves_the_previous_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "spec.json"
    file.write_text("previous")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GpuOpsError, match="No space left on device"):
        writing.replace(str(file), "new")
    assert os.listdir(tmp_path) == ["spec.json"]
    assert file.read_text() == "previous"


def _made(root: Path, machine: str, answer: ToolAnswer, generator: str = "auto") -> cdi_specs.Made:
    loader.build(machine, root)
    request = cdi_specs.Request(gpus=loader.facts_of(machine)["gpus"], generator=generator, disabled_hooks=["a-hook"])

    def runner(command: Any, timeout: float) -> ToolAnswer:
        assert list(command)[:3] == ["nvidia-ctk", "cdi", "generate"]
        assert list(command)[-1] == "--disable-hook=a-hook"
        return answer

    return cdi_specs.make(Root(str(root)), VENDORS["nvidia"], request, runner)


def _printed(gpus: list[Json], **changes: Any) -> ToolAnswer:
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": gpu["device_nodes"][0]}], "mounts": [{"hostPath": "/lib"}]}}
        for gpu in gpus for name in (str(gpu["index"]), gpu["uuid"])
    ]  # fmt: skip
    return ToolAnswer("ok", json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, **changes}))


def test_the_program_of_the_vendor_is_taken_and_names_are_added(tmp_path: Path) -> None:
    gpus = loader.facts_of("h100-8")["gpus"]
    made = _made(tmp_path, "h100-8", _printed(gpus))
    devices = {one["name"]: one["containerEdits"] for one in made.spec["devices"]}
    assert made.generator == "nvidia-ctk"
    assert sorted(devices) == sorted(str(gpu[key]) for gpu in gpus for key in ("index", "uuid", "pci_address"))
    assert all(devices[gpu["pci_address"]]["mounts"] for gpu in gpus)
    assert all(devices[gpu["pci_address"]]["deviceNodes"] == [{"path": gpu["device_nodes"][0]}] for gpu in gpus)


def test_without_the_program_device_nodes_are_made(tmp_path: Path) -> None:
    made = _made(tmp_path, "h100-8", ToolAnswer("absent"))
    assert made.generator == "builtin"
    assert {node["path"] for node in made.spec["containerEdits"]["deviceNodes"]} >= {"/dev/nvidiactl", "/dev/nvidia-uvm"}


@pytest.mark.parametrize(
    ("answer", "generator", "said"),
    [
        (ToolAnswer("failed", "", "exit status 1: no NVML"), "auto", "exit status 1: no NVML"),
        (ToolAnswer("slow", "", "no answer within 60 s"), "auto", "no answer within 60 s"),
        (ToolAnswer("absent", detail="not installed"), "program", "not installed"),
        (ToolAnswer("ok", "cdiVersion: 0.5.0"), "auto", "it printed no JSON"),
        (ToolAnswer("ok", "{}"), "auto", "runtimes refuse"),
        (_printed(loader.facts_of("h100-8")["gpus"], kind="other.com/gpu"), "auto", "its kind is other.com/gpu"),
        (_printed(loader.facts_of("h100-8")["gpus"][:7]), "auto", "is not in it"),
    ],
)
def test_a_program_that_fails_is_not_passed_over(tmp_path: Path, answer: ToolAnswer, generator: str, said: str) -> None:
    with pytest.raises(GpuOpsError) as caught:
        _made(tmp_path, "h100-8", answer, generator)
    assert said in caught.value.line()
    assert "\n" not in caught.value.line()


@pytest.mark.parametrize("vendor", ["amd", "intel"])
def test_a_vendor_without_a_program_says_so(tmp_path: Path, vendor: str) -> None:
    gpu = {"vendor": vendor, "pci_address": "0000:01:00.0", "ready": True, "device_nodes": ["/dev/kfd"]}
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    with pytest.raises(GpuOpsError, match="it has no program for that"):
        cdi_specs.make(Root(str(tmp_path)), VENDORS[vendor], cdi_specs.Request(gpus=[gpu], generator="program"))
