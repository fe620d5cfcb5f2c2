# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated NVIDIA library as the vendor's own Python binding reads it, with and without faults."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops_lab.errors import LabError
from gpuops_lab.hardware import catalogue, nvidia_library, tree

MACHINE = catalogue.load("h100-4")
PROLOGUE = "import json, os, pynvml as nvml\nnvml.nvmlInit()\nanswer = {}\n"
EPILOGUE = "\nprint(json.dumps(answer))"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's root with the driver's tree in place."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler on this machine")
    written = tmp_path / "written"
    tree.write(MACHINE, written)
    root = tmp_path / "node"
    shutil.copytree(written / "root", root, symlinks=True)
    (root / "proc").symlink_to(written / "proc")
    (root / "dev").mkdir()
    for name in ("nvidiactl", *(f"nvidia{gpu.minor}" for gpu in MACHINE.gpus)):
        (root / "dev" / name).touch()
    return root


def break_gpus(node: Path, *faults: str) -> None:
    (node / nvidia_library.FAULTS).write_text("".join(f"{fault}\n" for fault in faults), encoding="utf-8")


def ask(node: Path, script: str) -> dict[str, object]:
    """What a script with the vendor's binding, in a process of its own, puts into its answer."""
    environment = {"LD_LIBRARY_PATH": str(node / nvidia_library.library_folder()), "FAULTS": str(node / nvidia_library.FAULTS)}
    call = [sys.executable, "-c", PROLOGUE + script + EPILOGUE]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_the_vendors_binding_reads_every_gpu(node: Path) -> None:
    answer = ask(node, """
answer["driver"] = nvml.nvmlSystemGetDriverVersion()
for index in range(nvml.nvmlDeviceGetCount()):
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    pci = nvml.nvmlDeviceGetPciInfo(gpu)
    answer[nvml.nvmlDeviceGetUUID(gpu)] = [
        nvml.nvmlDeviceGetName(gpu), pci.busId.lower(), pci.pciDeviceId, nvml.nvmlDeviceGetMinorNumber(gpu),
        nvml.nvmlDeviceGetMemoryInfo(gpu).total, list(nvml.nvmlDeviceGetCudaComputeCapability(gpu)),
        nvml.nvmlDeviceGetMigMode(gpu), nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(pci.busId)),
    ]
""")  # fmt: skip
    assert answer.pop("driver") == MACHINE.gpus[0].driver_version
    assert answer == {
        gpu.uuid: [gpu.product, f"0000{gpu.address}", 0x233010DE, gpu.minor, gpu.memory_bytes, [9, 0], [0, 0], gpu.minor]
        for gpu in MACHINE.gpus
    }


def test_a_lost_gpu_is_counted_and_cannot_be_used(node: Path) -> None:
    break_gpus(node, f"lost {MACHINE.gpus[1].address}")
    answer = ask(node, """
answer["count"] = nvml.nvmlDeviceGetCount()
for index in range(4):
    try:
        answer[str(index)] = nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError as error:
        answer[str(index)] = str(error)
""")  # fmt: skip
    assert answer == {"count": 4, "0": 0, "1": "GPU is lost", "2": 2, "3": 3}


def test_an_error_is_told_once_and_only_for_a_watched_gpu(node: Path) -> None:
    watched, other = MACHINE.gpus[2].address, MACHINE.gpus[0].address
    break_gpus(node, f"xid {other} 31", f"xid {watched} 79")
    answer = ask(node, f"""
events = nvml.nvmlEventSetCreate()
nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(2), nvml.nvmlEventTypeXidCriticalError, events)
def wait():
    try:
        event = nvml.nvmlEventSetWait_v2(events, 0)
        return [nvml.nvmlDeviceGetIndex(event.device), event.eventType, event.eventData]
    except nvml.NVMLError as error:
        return str(error)
answer["told"] = [wait(), wait()]
with open(os.environ["FAULTS"], "a") as stream:
    stream.write("xid {watched} 48\\n")
answer["later"] = [wait(), wait()]
open(os.environ["FAULTS"], "w").close()
answer["mended"] = wait()
nvml.nvmlEventSetFree(events)
""")  # fmt: skip
    assert answer == {"told": [[2, 8, 79], "Timeout"], "later": [[2, 8, 48], "Timeout"], "mended": "Timeout"}


def test_nvidia_smi_reads_the_library(node: Path) -> None:
    def smi(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, str(node / "usr/bin/nvidia-smi"), *arguments]
        return subprocess.run(program, capture_output=True, text=True, check=False, env={"GPUOPS_ROOT": str(node)})

    assert [line.split("UUID: ")[1] for line in smi("-L").stdout.splitlines()] == [f"{gpu.uuid})" for gpu in MACHINE.gpus]
    break_gpus(node, f"lost {MACHINE.gpus[1].address}")
    lost = smi("-L")
    assert lost.returncode == 15
    assert lost.stdout.strip().splitlines()[-1] == (
        "Unable to determine the device handle for GPU1: 0000:3B:00.0: GPU is lost. Reboot the system to recover this GPU"
    )
    for library in (node / nvidia_library.library_folder()).glob("libnvidia-ml.so*"):
        library.unlink()
    missing = smi("-L")
    assert missing.returncode == 12
    assert "couldn't find libnvidia-ml.so" in missing.stdout


def test_a_compiler_that_fails_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "bin/cc"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\necho 'stdio.h: No such file or directory' >&2\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("GPUOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(compiler.parent))
    with pytest.raises(LabError, match=r"compile the simulated libnvidia-ml.*stdio\.h"):
        nvidia_library.compiled()
