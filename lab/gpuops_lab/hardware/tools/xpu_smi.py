# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated xpu-smi: discovery of the Intel GPUs that /sys/class/drm shows. Runs on Python 3.9."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Dict, List

ROOT = os.environ.get("GPUOPS_ROOT", "/")
# Numbers of the fields that `discovery --dump` takes.
FIELDS = {"1": "Device ID", "2": "Device Name", "3": "Vendor Name", "6": "PCI BDF Address", "16": "Memory Physical Size"}


def read(path: str) -> str:
    """Text of a file without its line end, empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def gpus() -> List[Dict[str, str]]:
    """One record for each Intel card that a driver holds and whose device node is there."""
    with open(os.path.join(ROOT, "usr/share/gpuops-lab/gpus.json"), encoding="utf-8") as stream:
        table = json.load(stream)
    folder = os.path.join(ROOT, "sys/class/drm")
    cards = [name for name in (os.listdir(folder) if os.path.isdir(folder) else []) if re.fullmatch(r"card\d+", name)]
    found: List[Dict[str, str]] = []
    for card in sorted(cards, key=lambda name: int(name[4:])):
        device = os.path.realpath(os.path.join(folder, card, "device"))
        if read(f"{device}/vendor") != "0x8086" or not os.path.exists(os.path.join(ROOT, "dev/dri", card)):
            continue
        address = os.path.basename(device)
        facts = table.get(address, {})
        found.append(
            {
                "Device ID": str(len(found)),
                "Device Name": str(facts.get("name", "")),
                "Vendor Name": "Intel(R) Corporation",
                "PCI BDF Address": address,
                "Memory Physical Size": f"{facts.get('memory_mib', 0)}.00 MiB",
            }
        )
    return found


def main(arguments: List[str]) -> int:
    """Answer `discovery`, with --dump FIELDS or -j."""
    if arguments[:1] != ["discovery"]:
        sys.stderr.write("xpu-smi: only `discovery` is simulated\n")
        return 2
    records = gpus()
    if "--dump" in arguments:
        numbers = arguments[arguments.index("--dump") + 1].split(",")
        unknown = [number for number in numbers if number not in FIELDS]
        if unknown:
            sys.stderr.write(f"xpu-smi: field {unknown[0]} is not simulated; use {','.join(FIELDS)}\n")
            return 2
        print(",".join(FIELDS[number] for number in numbers))
        for record in records:
            print(",".join(f'"{record[FIELDS[number]]}"' if number != "1" else record[FIELDS[number]] for number in numbers))
        return 0
    if "-j" in arguments:
        print(json.dumps({"device_list": records}, indent=4))
        return 0
    if not records:
        print("No device discovered")
        return 1
    for record in records:
        print(f"| {record['Device ID']:<9} | {record['Device Name']:<44} | {record['PCI BDF Address']} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
