# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated nvidia-smi: lists and queries the GPUs that the node's libnvidia-ml shows. Runs on Python 3.9."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import Dict, List

ROOT = os.environ.get("GPUOPS_ROOT", "/")
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
NO_LIBRARY = (
    "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. "
    "Please make sure that the NVIDIA Display Driver is properly installed and present in your system.\n"
)
UNITS = {"memory.total": " MiB", "memory.free": " MiB", "memory.used": " MiB", "utilization.gpu": " %"}


class LibraryError(Exception):
    """The library did not do what it was asked for; holds the exit status and what the vendor's tool prints."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class PciInfo(ctypes.Structure):
    """The library's nvmlPciInfo_t."""

    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "device_id", "subsystem_id")),
        ("id", ctypes.c_char * 32),
    ]


class Library:
    """The node's libnvidia-ml."""

    def __init__(self) -> None:
        name = f"usr/lib/{platform.machine()}-linux-gnu/libnvidia-ml.so.1"
        try:
            self.calls = ctypes.CDLL(os.path.join(ROOT, name))
        except OSError:
            raise LibraryError(12, NO_LIBRARY) from None
        self.calls.nvmlErrorString.restype = ctypes.c_char_p
        code = self.calls.nvmlInit_v2()
        if code:
            raise LibraryError(code, NO_DRIVER)

    def text(self, function: str, *handle: ctypes.c_void_p) -> str:
        """Answer of a call that fills a buffer with text."""
        buffer = ctypes.create_string_buffer(96)
        self._done(getattr(self.calls, function)(*handle, buffer, ctypes.c_uint(96)))
        return buffer.value.decode()

    def number(self, function: str, *handle: ctypes.c_void_p) -> int:
        """Answer of a call that fills one number."""
        value = ctypes.c_uint()
        self._done(getattr(self.calls, function)(*handle, ctypes.byref(value)))
        return value.value

    def handle(self, index: int) -> ctypes.c_void_p:
        """A GPU by its index."""
        gpu = ctypes.c_void_p()
        code = self.calls.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(gpu))
        if code:
            address = self.address(gpu)[4:] if gpu else "?"
            reason = self.calls.nvmlErrorString(code).decode()
            advice = "Reboot the system to recover this GPU"
            raise LibraryError(code, f"Unable to determine the device handle for GPU{index}: {address}: {reason}. {advice}\n")
        return gpu

    def address(self, gpu: ctypes.c_void_p) -> str:
        """A GPU's PCI address, as the library writes it."""
        info = PciInfo()
        self._done(self.calls.nvmlDeviceGetPciInfo_v3(gpu, ctypes.byref(info)))
        return info.id.decode()

    def memory(self, gpu: ctypes.c_void_p) -> List[int]:
        """Total, free and used memory in MiB."""
        memory = (ctypes.c_ulonglong * 3)()
        self._done(self.calls.nvmlDeviceGetMemoryInfo(gpu, memory))
        return [value // 1024**2 for value in memory]

    def mig(self, gpu: ctypes.c_void_p) -> str:
        """Whether a GPU is in MIG mode."""
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        self._done(self.calls.nvmlDeviceGetMigMode(gpu, ctypes.byref(current), ctypes.byref(pending)))
        return "Enabled" if current.value else "Disabled"

    def _done(self, code: int) -> None:
        if code:
            raise LibraryError(code, f"{self.calls.nvmlErrorString(code).decode()}\n")


def gpus(library: Library) -> List[Dict[str, str]]:
    """One record for each GPU that the library shows."""
    number = library.number("nvmlDeviceGetCount_v2")
    found: List[Dict[str, str]] = []
    for index in range(number):
        gpu = library.handle(index)
        name, uuid = library.text("nvmlDeviceGetName", gpu), library.text("nvmlDeviceGetUUID", gpu)
        address, (total, free, used) = library.address(gpu), library.memory(gpu)
        found.append(
            {
                "index": str(index),
                "name": name,
                "gpu_name": name,
                "uuid": uuid,
                "gpu_uuid": uuid,
                "pci.bus_id": address,
                "gpu_bus_id": address,
                "memory.total": str(total),
                "memory.used": str(used),
                "memory.free": str(free),
                "utilization.gpu": "0",
                "driver_version": library.text("nvmlSystemGetDriverVersion"),
                "mig.mode.current": library.mig(gpu),
                "count": str(number),
            }
        )
    return found


def query(records: List[Dict[str, str]], wanted: List[str], form: List[str]) -> int:
    """Print chosen fields as comma-separated values."""
    known = {"index", "name", "uuid", *UNITS} | (set(records[0]) if records else set(wanted))
    for name in wanted:
        if name not in known:
            sys.stdout.write(f'Field "{name}" is not a valid field to query.\n')
            return 2
    if "noheader" not in form:
        print(", ".join(name + (f" [{UNITS[name].strip()}]" if name in UNITS else "") for name in wanted))
    for record in records:
        units = {} if "nounits" in form else UNITS
        print(", ".join(record[name] + units.get(name, "") for name in wanted))
    return 0


def answer(arguments: List[str]) -> int:
    """Answer -L, --query-gpu and a plain call."""
    library = Library()
    options = {word.partition("=")[0]: word.partition("=")[2] for word in arguments}
    if "--query-gpu" in options:
        form = [part.strip() for part in options.get("--format", "csv").split(",")]
        return query(gpus(library), [name.strip() for name in options["--query-gpu"].split(",")], form)
    if "-L" in options or "--list-gpus" in options:
        for record in gpus(library):
            print(f"GPU {record['index']}: {record['name']} (UUID: {record['uuid']})")
        return 0
    if arguments:
        sys.stdout.write(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help: {arguments[0]}\n")
        return 6
    records = gpus(library)
    if not records:
        print("No devices were found")
        return 6
    version = library.text("nvmlSystemGetDriverVersion")
    print(f"NVIDIA-SMI {version}  Driver Version: {version}  (simulated by gpuops.k8s)")
    for record in records:
        print(f"| {record['index']:>3}  {record['name']:<28} {record['pci.bus_id']} | {record['memory.total']:>7} MiB |")
    return 0


def main(arguments: List[str]) -> int:
    """Answer; without driver or library, or with a GPU that is lost, the vendor's line and exit status."""
    try:
        return answer(arguments)
    except LibraryError as error:
        sys.stdout.write(str(error))
        return error.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
