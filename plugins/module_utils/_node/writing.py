# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changing files of a node so that a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import os
import tempfile

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError


def replace(path: str, content: str, mode: int = 0o644) -> None:
    """Write a file beside its place and rename it there; folders are made.

    Raises GpuOpsError; the previous file is as it was then.
    """
    refuse_link(path)
    folder = os.path.dirname(path)
    beside = ""
    try:
        os.makedirs(folder, exist_ok=True)
        handle, beside = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(beside, mode)
        os.replace(beside, path)
    except OSError as error:
        _forget(beside)
        raise GpuOpsError(
            f"Writing {path}: {error.strerror or error}",
            "The previous file is untouched. Make room or permit it, and run again.",
        ) from error


def remove(path: str) -> None:
    """Remove a file if it is there. Raises GpuOpsError."""
    refuse_link(path)
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise GpuOpsError(f"Removing {path}: {error.strerror or error}", "Permit it and run again.") from error


def refuse_link(path: str) -> None:
    """Raises GpuOpsError for a symbolic link: what it points to belongs to someone else."""
    if os.path.islink(path):
        raise GpuOpsError(
            f"Changing {path}: it is a symbolic link to {os.readlink(path)}",
            "Remove the link, or name the file itself.",
        )


def _forget(path: str) -> None:
    try:
        if path:
            os.unlink(path)
    except OSError:
        pass
