# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of simulated machines: one YAML file each under C(lab/hardware)."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import yaml

from gpuops_lab.errors import LabError
from gpuops_lab.hardware import assembly
from gpuops_lab.hardware.machine import Machine
from gpuops_lab.paths import LAB_FOLDER

FOLDER = LAB_FOLDER / "hardware"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def names() -> list[str]:
    """Names of all machines, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yml"))


def load(name: str, serial: str = "") -> Machine:
    """Read one machine.

    Args:
        name: Its name in the catalogue.
        serial: Tells two machines of one model apart; their GPUs have other ids then, and always the same ones.

    Raises:
        LabError: Unknown name (with near matches) or a broken file.
    """
    path = FOLDER / f"{name}.yml"
    if not _NAME.fullmatch(name) or not path.is_file():
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.4) or names()
        raise LabError(f"unknown hardware {name!r}", f"did you mean: {', '.join(near)}")
    return parse(name, _read(path), path, serial)


def parse(name: str, document: Any, path: Path, serial: str = "") -> Machine:
    """Make a machine from a parsed catalogue file.

    Raises:
        LabError: The document does not describe a machine; the path is named.
    """
    try:
        if not isinstance(document, dict):
            raise ValueError(f"expected keys and values, found {type(document).__name__}")
        document = dict(document)
        chassis = _read(FOLDER / "chassis" / f"{document.pop('chassis', 'two_socket')}.yml")
        return assembly.assemble(name, document, chassis, serial)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        text = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise LabError(f"cannot read hardware {path}: {text}", "compare it with lab/hardware/l4-2.yml") from error


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LabError(f"cannot read hardware {path}: {' '.join(str(error).split())}") from error
