# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels that the collection puts on its objects or reads from others, and who an object belongs to by them."""

from __future__ import annotations

from typing import Any, Mapping

MANAGER = "gpuops.k8s"  # also the field manager
MANAGED_BY = "app.kubernetes.io/managed-by"
COMPONENT = "app.kubernetes.io/component"
NAME = "app.kubernetes.io/name"
HOSTNAME = "kubernetes.io/hostname"
VENDOR = "gpuops.k8s/vendor"
PROBE_RUN = "gpuops.k8s/probe-run"
PROBE = "gpu-probe"  # component of all that the allocation probe makes


def of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """An object's labels."""
    labels: Mapping[str, str] = (item.get("metadata") or {}).get("labels") or {}
    return labels


def is_owned(item: Mapping[str, Any]) -> bool:
    """Whether this collection made the object."""
    return of(item).get(MANAGED_BY) == MANAGER


def is_probe(item: Mapping[str, Any]) -> bool:
    """Whether the allocation probe made the object, in whichever run."""
    return is_owned(item) and of(item).get(COMPONENT) == PROBE
