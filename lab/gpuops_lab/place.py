# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The place that a lab takes on the host: its index, and with it addresses, link and table names.

Every name is computed from the lab's name and index, so that clean-up needs no record of what was made.
The one record, place.json, is written before anything else is.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpuops_lab import host_settings
from gpuops_lab.errors import LabError
from gpuops_lab.paths import RUN_TIME_ROOT, run_time_folder, write_atomically

MAXIMUM_LABS = 16
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"


@dataclass(frozen=True)
class Place:
    """Where one lab lives on the host."""

    name: str
    index: int
    checkout: str  # the checkout whose `up` made it
    settings_before: dict[str, int] = field(default_factory=dict)  # of the host, before the first lab

    @property
    def folder(self) -> Path:
        """Run-time folder: node roots, container data, control plane data."""
        return run_time_folder(self.name)

    @property
    def bridge(self) -> str:
        """Name of the bridge that joins the nodes."""
        return f"gpuops{self.index}"

    @property
    def table(self) -> str:
        """Name of the nftables table with the masquerade rule."""
        return f"gpuops_{self.name.replace('-', '_')}"

    @property
    def host_address(self) -> str:
        """Address of the host on the bridge, where the API server listens."""
        return f"172.30.{77 + self.index}.1"

    @property
    def node_range(self) -> str:
        """Range of the nodes' addresses."""
        return f"172.30.{77 + self.index}.0/24"

    def node_address(self, position: int) -> str:
        """Address of the node at a position of the topology, counted from 0."""
        return f"172.30.{77 + self.index}.{11 + position}"

    def pod_range(self, position: int) -> str:
        """Range of the pods on the node at a position."""
        return f"10.{88 + self.index}.{1 + position}.0/24"

    def network_namespace(self, node: str) -> str:
        """Name of a node's network namespace."""
        return f"gpuops-{self.name}-{node}"

    def link(self, position: int) -> str:
        """Name of the host's end of a node's link."""
        return f"gpuops{self.index}n{position}"

    @property
    def control_group(self) -> str:
        """Path of the lab's control group below each hierarchy."""
        return f"gpuops/{self.name}"


@contextmanager
def locked() -> Iterator[None]:
    """Hold the machine-wide lock under which indexes are given out and taken back."""
    RUN_TIME_ROOT.mkdir(parents=True, exist_ok=True)
    with open(RUN_TIME_ROOT / ".lock", "w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def held(name: str) -> Iterator[None]:
    """Hold one lab for a change of its life; the kernel lets go of it when this process ends, however it ends.

    Raises:
        LabError: Another command is at it.
    """
    RUN_TIME_ROOT.mkdir(parents=True, exist_ok=True)
    with open(RUN_TIME_ROOT / f".{name}.lock", "w", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(f"another gpuops-lab command starts or removes lab {name}", "wait for it, then try again") from None
        yield


def find(name: str) -> Place | None:
    """The place of a lab, None if it has none."""
    path = run_time_folder(name) / "place.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        # A record of another version of this package may know more: its lab must still be removable.
        return Place(**{key: value for key, value in document.items() if key in Place.__dataclass_fields__})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise LabError(f"cannot read {path}: {error}", "remove the file and run `gpuops-lab down` again") from error


def every() -> list[Place]:
    """The places of all labs on this machine."""
    found = [find(path.parent.name) for path in sorted(RUN_TIME_ROOT.glob("*/place.json"))]
    return [place for place in found if place is not None]


def take(name: str, checkout: Path) -> Place:
    """Give a lab a free index and record it.

    Raises:
        LabError: All indexes are taken.
    """
    with locked():
        used = {place.index for place in every()}
        free = next((index for index in range(MAXIMUM_LABS) if index not in used), None)
        if free is None:
            raise LabError(f"{MAXIMUM_LABS} labs are running", "remove one with `gpuops-lab down --name NAME`")
        before = next((place.settings_before for place in every()), None) or host_settings.read()
        place = Place(name, free, str(checkout), before)
        write_atomically(place.folder / "place.json", json.dumps(asdict(place), indent=1) + "\n")
        return place
