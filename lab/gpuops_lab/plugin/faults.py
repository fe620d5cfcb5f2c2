# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults on demand: a file in the device-plugins folder says what goes wrong, the plugin reads it all the time."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuops_lab.plugin.model import Device, Resource

FILE = "gpuops-faults.json"
EVERYTHING = "*"  # key of the faults that every resource has
KINDS: dict[str, str] = {
    "device-missing": "one device less is offered: `device`, else the last one",
    "device-unhealthy": "one device is unhealthy: `device`, else the first one",
    "device-flap": "one device changes between healthy and unhealthy every `seconds` (default 1)",
    "duplicate-id": "a second id is offered for a physical device that has one already",
    "allocate-error": "Allocate fails with `message`",
    "allocate-slow": "Allocate answers after `seconds` (default 10)",
    "wrong-device": "Allocate hands out another device's nodes than those of the id that was asked for",
    "socket-removed": "the plugin's socket file is gone while the process lives",
    "crash": "the process ends with exit status 1, at once and after every start",
    "hang": "the plugin registers and accepts calls, but never lists a device",
    "second-registration": "the same resource is registered a second time from another socket",
}


@dataclass(frozen=True)
class Fault:
    """One fault of one resource."""

    kind: str
    device: str = ""
    seconds: float = 0.0
    message: str = ""


Faults = dict[str, list[Fault]]


def write(folder: Path, faults: dict[str, list[dict[str, Any]]]) -> None:
    """Replace the faults of a node's plugins; an empty dictionary clears them all.

    Args:
        folder: The node's device-plugins folder.
        faults: Resource name or C(*) to faults, each with C(kind) and perhaps C(device), C(seconds), C(message).

    Raises:
        ValueError: An unknown kind or key.
    """
    _parse(faults)
    path = folder / FILE
    if not faults:
        path.unlink(missing_ok=True)
        return
    temporary = folder / f".{FILE}.tmp"
    temporary.write_text(json.dumps(faults, indent=1), encoding="utf-8")
    os.replace(temporary, path)


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The faults as they were written, empty without a file.

    Raises:
        ValueError: The file cannot be understood.
    """
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    document = json.loads(text)
    _parse(document)
    return dict(document)


def _parse(document: Any) -> Faults:
    if not isinstance(document, dict):
        raise ValueError("faults must be an object of resource names")
    parsed: Faults = {}
    for resource, entries in document.items():
        if not isinstance(entries, list):
            raise ValueError(f"faults of {resource} must be a list")
        parsed[resource] = [_one(resource, entry) for entry in entries]
    return parsed


def _one(resource: str, entry: Any) -> Fault:
    if not isinstance(entry, dict) or entry.get("kind") not in KINDS:
        raise ValueError(f"fault {entry!r} of {resource} has no known kind; known: {', '.join(KINDS)}")
    unknown = sorted(entry.keys() - {"kind", "device", "seconds", "message"})
    if unknown:
        raise ValueError(f"fault {entry['kind']} of {resource} has unknown keys {', '.join(unknown)}")
    return Fault(entry["kind"], entry.get("device") or "", float(entry.get("seconds") or 0), entry.get("message") or "")


@dataclass
class Watch:
    """Faults of one folder, read again when the file changes."""

    folder: Path
    faults: Faults = field(default_factory=dict)
    problem: str = ""
    _seen: tuple[int, int] | None = None

    def poll(self) -> bool:
        """Read again if need be; whether anything changed. An unreadable file leaves the faults as they are."""
        try:
            status = (self.folder / FILE).stat()
            seen: tuple[int, int] | None = (status.st_mtime_ns, status.st_ino)
        except OSError:
            seen = None
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            faults = _parse(read(self.folder))
        except (OSError, ValueError) as error:
            self.problem = f"cannot read {self.folder / FILE}: {error}"
            return False
        self.problem = ""
        changed = faults != self.faults
        self.faults = faults
        return changed

    def of(self, resource: str) -> list[Fault]:
        """Faults of one resource, those of all included."""
        return [*self.faults.get(EVERYTHING, ()), *self.faults.get(resource, ())]


def find(faults: Sequence[Fault], kind: str) -> Fault | None:
    """The first fault of a kind."""
    return next((fault for fault in faults if fault.kind == kind), None)


def view(resource: Resource, faults: Sequence[Fault], now: float | None = None) -> Resource:
    """The resource as it looks under these faults. Pure but for the clock, which C(now) replaces."""
    devices = list(resource.devices)
    for fault in faults:
        if not devices:
            break
        change = _CHANGES.get(fault.kind)
        if change:
            change(devices, fault, time.monotonic() if now is None else now)
    return replace(resource, devices=tuple(devices))


def _position(devices: Sequence[Device], wanted: str, default: int) -> int:
    """Index of a device, by its id or, for shared devices, by its unit; -1 where there is no such device."""
    if not wanted:
        return default % len(devices)
    return next((at for at, device in enumerate(devices) if wanted in (device.id, device.unit)), -1)


def _missing(devices: list[Device], fault: Fault, _: float) -> None:
    at = _position(devices, fault.device, -1)
    if at >= 0:
        del devices[at]


def _unhealthy(devices: list[Device], fault: Fault, _: float) -> None:
    at = _position(devices, fault.device, 0)
    if at >= 0:
        devices[at] = replace(devices[at], healthy=False)


def _flap(devices: list[Device], fault: Fault, now: float) -> None:
    if int(now / (fault.seconds or 1.0)) % 2:
        _unhealthy(devices, fault, now)


def _duplicate(devices: list[Device], fault: Fault, _: float) -> None:
    at = _position(devices, fault.device, 0)
    if at >= 0:
        taken = {device.id for device in devices}
        devices.append(replace(devices[at], id=second_id(devices[at].id, taken)))


def _wrong(devices: list[Device], fault: Fault, _: float) -> None:
    """Give a device its neighbour's nodes; the neighbour keeps its own. A single device gets a node that is none."""
    at = _position(devices, fault.device, 0)
    if at < 0:
        return
    others = [device for device in devices if device.unit != devices[at].unit]
    if others:
        other = devices[(at + 1) % len(devices)]
        other = other if other.unit != devices[at].unit else others[0]
        devices[at] = replace(devices[at], nodes=other.nodes, mounts=other.mounts, names=_names(devices[at], other))
    else:
        devices[at] = replace(devices[at], nodes=("/dev/null",), mounts=(), names=())


def _names(device: Device, other: Device) -> tuple[str, ...]:
    """CDI names bring nodes with them, so they must be wrong too; a UUID only tells, and goes on telling the old."""
    return other.names if device.names and device.names[0].startswith("card") else device.names


_CHANGES = {
    "device-missing": _missing,
    "device-unhealthy": _unhealthy,
    "device-flap": _flap,
    "duplicate-id": _duplicate,
    "wrong-device": _wrong,
}


def second_id(device_id: str, taken: set[str]) -> str:
    """An id that looks like the vendor's and that nothing has yet."""
    base, separator, replica = device_id.partition("::")
    pattern = r"(.*?)([0-9a-f])" if base.startswith("GPU-") else r"(.*?)(\d+)"
    match = re.fullmatch(pattern, base, re.DOTALL)
    if not match:
        return f"{device_id}-2"
    head, tail = match[1], match[2]
    for step in range(1, 10_000):
        if base.startswith("GPU-"):
            candidate = f"{head}{(int(tail, 16) + step) % 16:x}"
        else:
            candidate = f"{head}{int(tail) + step}"
        candidate += separator + replica
        if candidate not in taken:
            return candidate
    return f"{device_id}-2"
