# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the programs come from: built from source modules, or official releases."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gpuops_lab.errors import LabError
from gpuops_lab.programs import build, release
from gpuops_lab.programs.components import Component


def programs(components: list[Component], report: Callable[[str], None], source: str = "") -> dict[str, Path]:
    """Path of every program by name.

    Args:
        components: What the lab is made of.
        report: Receives progress lines.
        source: C(build), C(release), a folder or a URL of the releases' layout;
            "" takes C(GPUOPS_BINARIES), and C(build) without it.

    Raises:
        LabError: A build or a download failed, or the source is none of these.
    """
    chosen = source or os.environ.get("GPUOPS_BINARIES", "") or "build"
    if chosen == "build":
        folders = build.build_all(components, report)
    elif chosen == "release" or "/" in chosen:
        folders = release.fetch_all(components, "" if chosen == "release" else chosen, report)
    else:
        raise LabError(f"unknown source of programs {chosen!r}", "use build, release, a folder or a URL")
    pairs = zip(components, folders, strict=True)
    return {program.name: folder / program.name for component, folder in pairs for program in component.programs}
