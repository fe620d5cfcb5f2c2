# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a vendor's tool adds to the records, and what its failure tells."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import (
    DriverFacts,
    GpuRecord,
    LeftOut,
    Problem,
    problem,
)
from ansible_collections.gpuops.k8s.plugins.module_utils._node.tools import Command, ToolAnswer
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

MIB = 1024**2
_BROKEN = re.compile(r"ERR!|Unknown Error|requires reset|is lost", re.IGNORECASE)
_ABSENT = ToolAnswer("absent", detail="not run")


def questions(vendor: Vendor, served: Sequence[GpuRecord]) -> List[Command]:
    """The commands that tell something of these GPUs."""
    if not served or not vendor.tool:
        return []
    reading = vendor.reading
    wanted = [vendor.tool, reading.tool_details.command]
    wanted.append(reading.tool_instances if any(gpu["mig_devices"] for gpu in served) else ())
    wanted.append(reading.tool_peers if len(served) > 1 else ())
    return [command for command in wanted if command]


class Answers:
    """The answers of one vendor's tool, taken into the records of the GPUs that its driver serves."""

    def __init__(self, vendor: Vendor, served: List[GpuRecord], answers: Mapping[Command, ToolAnswer]) -> None:
        self.vendor = vendor
        self.served = served
        self.answers = answers
        self.problems: List[Problem] = []
        self.left_out: List[LeftOut] = []
        self.merged = False  # whether the records have something from the tool

    def take(self, driver: DriverFacts) -> None:
        """Complete the records and the driver's facts."""
        main = self.answers.get(self.vendor.tool, _ABSENT)
        self._judge(main, driver)
        if main.state != "ok" or not self.vendor.reading.tool_columns:
            return
        self.merged = True
        named = self._rows(main.output, self.vendor.reading.tool_columns)
        if named < len(self.served):
            message = f"{self.vendor.tool[0]} names {named} of the {len(self.served)} GPUs that the driver holds"
            hint = "A GPU may have fallen off the bus: look at dmesg."
            self.problems.append(problem("tool_counts_fewer", self.vendor.tool[0], message, hint))
        self._details()
        self._instances()
        # The tool numbers the GPUs that it sees, so a missing one would shift all that follow.
        if named == len(self.served):
            self._peers()

    def _judge(self, answer: ToolAnswer, driver: DriverFacts) -> None:
        """What the tool's failure tells."""
        name, command = self.vendor.tool[0], " ".join(self.vendor.tool)
        if answer.state != "ok" and self.vendor.reading.tool_columns:
            self.left_out.append({"subject": name, "reason": f"memory is the model's nominal size ({answer.detail})"})
        if answer.state == "slow":
            hint = "The driver or a GPU may hang: look at dmesg; raise tool_timeout if the node is only slow."
            self.problems.append(problem("tool_slow", name, f"{name}: {answer.detail}", hint))
        elif answer.state == "failed":
            hint = f"Run {command} on the node; driver and library versions must match."
            self.problems.append(problem("tool_broken", name, f"{name}: {answer.detail}", hint))
        pattern = self.vendor.reading.tool_mismatch
        match = re.search(pattern, f"{answer.output}\n{answer.detail}") if pattern and answer.state == "failed" else None
        if match:
            driver["mismatch"] = True
            driver["userspace_version"] = driver["userspace_version"] or match.group("version") or ""

    def _rows(self, output: str, columns: Sequence[str]) -> int:
        """Take a table's lines, comma separated in the order of C(columns), into the records; the number of GPUs named."""
        by_address = {_short(gpu["pci_address"]): gpu for gpu in self.served}
        named = set()
        for line in output.splitlines():
            row = {key: value.strip() for key, value in zip(columns, line.split(",")) if key}
            gpu = by_address.get(_short(row.get("pci_address", "")))
            if gpu is None:
                continue
            named.add(gpu["pci_address"])
            broken = sorted(value for value in row.values() if _BROKEN.search(value))
            if broken and gpu["pci_address"] not in {entry["subject"] for entry in self.problems}:
                message = f"{self.vendor.title} GPU {gpu['pci_address']}: {self.vendor.tool[0]} shows {broken[0]}"
                hint = "Look at dmesg; drain the node and reset the GPU or reboot."
                self.problems.append(problem("gpu_error", gpu["pci_address"], message, hint))
            _merge(gpu, {key: value for key, value in row.items() if _says_something(value)})
        return len(named)

    def _details(self) -> None:
        table = self.vendor.reading.tool_details
        if table.command and self._is_useful(table.command, "capability is the model's, MIG mode and ECC are not known"):
            self._rows(self.answers[table.command].output, table.columns)

    def _instances(self) -> None:
        """The lines of hardware instances below the line of their GPU: C(MIG 1g.10gb Device 0: (UUID: MIG-…))."""
        command = self.vendor.reading.tool_instances
        if command not in self.answers or not self._is_useful(command, "profiles of hardware instances are not known"):
            return
        by_uuid = {gpu["uuid"]: gpu for gpu in self.served if gpu["uuid"]}
        found: Dict[str, List[Dict[str, str]]] = {}
        owner = ""
        for line in self.answers[command].output.splitlines():
            match = re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: ([^)]+)\)", line)
            if match and owner:
                found[owner].append({"uuid": match.group(2), "profile": match.group(1)})
            gpu_line = re.match(r"GPU \d+: .*\(UUID: ([^)]+)\)", line)
            if gpu_line:
                owner = gpu_line.group(1)
                found[owner] = []
        for uuid, devices in found.items():
            if uuid in by_uuid and devices:
                by_uuid[uuid]["mig_devices"] = [{"uuid": each["uuid"], "profile": each["profile"]} for each in devices]

    def _peers(self) -> None:
        """The matrix of links: C(NV18) says that GPUs of row and column have 18 links between them."""
        command = self.vendor.reading.tool_peers
        if command not in self.answers or not self._is_useful(command, "links between GPUs are not known"):
            return
        text = re.sub(r"\x1b\[[0-9;]*m", "", self.answers[command].output)
        rows = [line.split() for line in text.splitlines() if re.match(r"\s*GPU\d+\s", line)]
        columns = [word for word in (rows[0] if rows else []) if re.match(r"^GPU\d+$", word)]
        for row in rows[1:]:
            own = self._by_number(row[0])
            for name, cell in zip(columns, row[1:]):
                other, link = self._by_number(name), re.match(r"^NV(\d+)$", cell)
                if own is not None and other is not None and link:
                    own["peers"].append({"pci_address": other["pci_address"], "link": "nvlink", "count": int(link.group(1))})

    def _by_number(self, name: str) -> Optional[GpuRecord]:
        """The GPU that the tool numbers so: it counts those that the driver serves, in the order of PCI addresses."""
        number = int(name[len("GPU") :])
        return self.served[number] if number < len(self.served) else None

    def _is_useful(self, command: Command, loss: str) -> bool:
        answer = self.answers.get(command, _ABSENT)
        if answer.state != "ok":
            self.left_out.append({"subject": " ".join(command[:2]), "reason": f"{loss} ({answer.detail})"})
        return answer.state == "ok"


def _merge(gpu: GpuRecord, row: Mapping[str, str]) -> None:
    gpu["uuid"] = gpu["uuid"] or row.get("uuid", "")
    gpu["driver_version"] = gpu["driver_version"] or row.get("driver_version", "")
    gpu["capability"] = row.get("capability") or gpu["capability"]
    gpu["mig_mode"] = row.get("mig_mode", "").lower() or gpu["mig_mode"]
    gpu["ecc"] = row.get("ecc", "").lower() or gpu["ecc"]
    if gpu["model"].startswith("unknown ") and row.get("model"):
        gpu["model"] = row["model"]
    if row.get("memory_mib", "").isdecimal():
        gpu["memory_bytes"], gpu["memory_source"] = int(row["memory_mib"]) * MIB, "driver"


def _says_something(value: str) -> bool:
    """Tools write C([N/A]), C([Not Supported]) or C(ERR!) where they know nothing."""
    return bool(value) and value[0] != "[" and value not in ("N/A", "ERR!") and not _BROKEN.search(value)


def _short(address: str) -> str:
    """Address without leading zeros of the domain: tools print eight digits, the kernel four."""
    return address.strip().lower().lstrip("0")
