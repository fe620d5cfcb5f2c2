# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated nvidia-smi: lists and queries the GPUs that /proc/driver/nvidia shows. Runs on Python 3.9."""

from __future__ import annotations

import json
import os
import sys
from typing import Dict, List

ROOT = os.environ.get("GPUOPS_ROOT", "/")
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
UNITS = {"memory.total": " MiB", "memory.free": " MiB", "memory.used": " MiB", "utilization.gpu": " %"}


def read(path: str) -> str:
    """Text of a file below the root, empty if it cannot be read."""
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as stream:
            return stream.read()
    except OSError:
        return ""


def fields(text: str) -> Dict[str, str]:
    """Keys and values of an information file."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def driver_version() -> str:
    """Version of the loaded kernel module, empty if none is loaded."""
    words = read("proc/driver/nvidia/version").split("\n")[0].split()
    return next((word for word in words if word[0].isdigit() and "." in word), "")


def gpus() -> List[Dict[str, str]]:
    """One record for each GPU that the driver shows and whose device node is there."""
    table = json.loads(read("usr/share/gpuops-lab/gpus.json") or "{}")
    folder = os.path.join(ROOT, "proc/driver/nvidia/gpus")
    found: List[Dict[str, str]] = []
    for address in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        facts = fields(read(f"proc/driver/nvidia/gpus/{address}/information"))
        if not facts or not os.path.exists(os.path.join(ROOT, f"dev/nvidia{facts.get('Device Minor', '')}")):
            continue
        memory = int(table.get(address, {}).get("memory_mib", 0))
        found.append(
            {
                "index": str(len(found)),
                "name": facts.get("Model", ""),
                "gpu_name": facts.get("Model", ""),
                "uuid": facts.get("GPU UUID", ""),
                "gpu_uuid": facts.get("GPU UUID", ""),
                "pci.bus_id": f"0000{address.upper()}",
                "gpu_bus_id": f"0000{address.upper()}",
                "memory.total": str(memory),
                "memory.used": "1",
                "memory.free": str(max(0, memory - 1)),
                "utilization.gpu": "0",
                "driver_version": driver_version(),
                "mig.mode.current": "Disabled",
                "count": "",
            }
        )
    for record in found:
        record["count"] = str(len(found))
    return found


def query(wanted: List[str], form: List[str]) -> int:
    """Print chosen fields as comma-separated values."""
    records = gpus()
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


def main(arguments: List[str]) -> int:
    """Answer -L, --query-gpu and a plain call; exit status 9 without a driver, as the vendor's tool."""
    if not driver_version() or not os.path.exists(os.path.join(ROOT, "dev/nvidiactl")):
        sys.stdout.write(NO_DRIVER)
        return 9
    options = {word.partition("=")[0]: word.partition("=")[2] for word in arguments}
    if "--query-gpu" in options:
        form = [part.strip() for part in options.get("--format", "csv").split(",")]
        return query([name.strip() for name in options["--query-gpu"].split(",")], form)
    if "-L" in options or "--list-gpus" in options:
        for record in gpus():
            print(f"GPU {record['index']}: {record['name']} (UUID: {record['uuid']})")
        return 0
    if arguments:
        sys.stdout.write(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help: {arguments[0]}\n")
        return 6
    records = gpus()
    if not records:
        print("No devices were found")
        return 6
    print(f"NVIDIA-SMI {driver_version()}  Driver Version: {driver_version()}  (simulated by gpuops.k8s)")
    for record in records:
        print(f"| {record['index']:>3}  {record['name']:<28} {record['pci.bus_id']} | {record['memory.total']:>7} MiB |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
