# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's one door to the collection: data that the simulation must share with what it tests."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from gpuops_lab.errors import LabError
from gpuops_lab.paths import CHECKOUT

_COLLECTIONS = CHECKOUT / "build" / "collections"


@dataclass(frozen=True)
class VendorFacts:
    """What the lab needs of a vendor's record."""

    name: str
    plugin_image: str  # with its tag, as the collection's manifests name it
    resources: tuple[str, ...]  # extended resource names
    device_globs: tuple[str, ...]  # device nodes of single GPUs
    control_nodes: tuple[str, ...]  # device nodes that all GPUs share


def vendors() -> dict[str, VendorFacts]:
    """Facts of every vendor by its name.

    Raises:
        LabError: The collection cannot be imported.
    """
    if _COLLECTIONS.is_dir() and str(_COLLECTIONS) not in sys.path:
        sys.path.append(str(_COLLECTIONS))
    try:
        from ansible_collections.gpuops.k8s.plugins.module_utils._vendors import registry
    except ImportError as error:
        raise LabError(
            f"the collection gpuops.k8s cannot be imported: {error}", f"run `make setup`, which links it below {_COLLECTIONS}"
        ) from error
    return {
        name: VendorFacts(
            name=name,
            plugin_image=f"{vendor.plugin.image}:{vendor.plugin.version}",
            resources=tuple(vendor.resources.values()),
            device_globs=vendor.device_globs,
            control_nodes=vendor.control_nodes,
        )
        for name, vendor in registry.VENDORS.items()
    }
