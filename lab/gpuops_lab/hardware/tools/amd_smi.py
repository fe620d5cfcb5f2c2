# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated rocm-smi and amd-smi: show the GPUs that sysfs shows as bound to amdgpu. Runs on Python 3.9."""

from __future__ import annotations

import json
import os
import sys
from typing import Dict, List, Set

ROOT = os.environ.get("GPUOPS_ROOT", "/")


def read(path: str) -> str:
    """Text of a file without its line end, empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def gpus() -> List[Dict[str, str]]:
    """One record for each PCI function that amdgpu holds."""
    folder = os.path.join(ROOT, "sys/bus/pci/drivers/amdgpu")
    found: List[Dict[str, str]] = []
    for address in sorted(name for name in (os.listdir(folder) if os.path.isdir(folder) else []) if ":" in name):
        device = os.path.join(folder, address)
        found.append(
            {
                "index": str(len(found)),
                "bdf": address,
                "name": read(f"{device}/product_name"),
                "device_id": read(f"{device}/device"),
                "revision": read(f"{device}/revision"),
                "unique_id": read(f"{device}/unique_id"),
                "vram_total": read(f"{device}/mem_info_vram_total"),
                "vram_used": read(f"{device}/mem_info_vram_used"),
            }
        )
    return found


def card_values(record: Dict[str, str], wanted: Set[str]) -> Dict[str, str]:
    """What rocm-smi shows of one GPU."""
    parts = {
        "id": {"Device Name": record["name"], "Device ID": record["device_id"], "Device Rev": record["revision"]},
        "unique": {"Unique ID": f"0x{record['unique_id']}"},
        "bus": {"PCI Bus": record["bdf"].upper()},
        "name": {"Card Series": record["name"], "Card Vendor": "Advanced Micro Devices, Inc. [AMD/ATI]"},
        "memory": {"VRAM Total Memory (B)": record["vram_total"], "VRAM Total Used Memory (B)": record["vram_used"]},
    }
    return {key: value for part, values in parts.items() if part in wanted for key, value in values.items()}


def rocm_smi(arguments: List[str]) -> int:
    """Answer --showid, --showuniqueid, --showbus, --showproductname, --showmeminfo vram, with or without --json."""
    known = {"--showid": "id", "-i": "id", "--showuniqueid": "unique", "--showbus": "bus"}
    known.update({"--showproductname": "name", "--showmeminfo": "memory", "--json": "", "vram": "", "--csv": ""})
    for word in arguments:
        if word not in known:
            sys.stderr.write(f"rocm-smi: error: unrecognized arguments: {word}\n")
            return 2
    wanted = {known[word] for word in arguments} - {""} or {"id"}
    cards = {record["index"]: card_values(record, wanted) for record in gpus()}
    if "--json" in arguments:
        print(json.dumps({f"card{index}": values for index, values in cards.items()}))
        return 0
    print("============================ ROCm System Management Interface ============================")
    for index, values in cards.items():
        for key, value in values.items():
            print(f"GPU[{index}]\t\t: {key}: \t\t{value}")
    print("================================== End of ROCm SMI Log ===================================")
    return 0


def amd_smi(arguments: List[str]) -> int:
    """Answer list and version, with or without --json."""
    words = [word for word in arguments if word != "--json"]
    if words[:1] == ["version"]:
        print("AMDSMI Tool: 26.0.0 (simulated by gpuops.k8s)")
        return 0
    if words[:1] not in ([], ["list"]):
        sys.stderr.write(f"amd-smi: '{words[0]}' is not simulated; use list or version\n")
        return 2
    keep = ("bdf", "unique_id")
    records = [{"gpu": int(record["index"]), **{key: record[key] for key in keep}} for record in gpus()]
    if "--json" in arguments:
        print(json.dumps(records, indent=4))
    else:
        for record in records:
            print(f"GPU: {record['gpu']}\n    BDF: {record['bdf']}\n    UUID: {record['unique_id']}\n")
    return 0


def main(program: str, arguments: List[str]) -> int:
    """Run as the tool whose name the program carries; exit status 1 without a driver."""
    if not os.path.isdir(os.path.join(ROOT, "sys/module/amdgpu")) or not os.path.exists(os.path.join(ROOT, "dev/kfd")):
        sys.stderr.write("ERROR: Driver not initialized (amdgpu not found in modules)\n")
        return 1
    return amd_smi(arguments) if os.path.basename(program) == "amd-smi" else rocm_smi(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[0], sys.argv[1:]))
