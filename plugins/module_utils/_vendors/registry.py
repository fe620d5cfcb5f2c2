# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors that the collection knows. A new vendor is one file and one line here."""

from __future__ import annotations

from typing import Dict, List

from ansible_collections.gpuops.k8s.plugins.module_utils._vendors import amd, intel, nvidia
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

VENDORS: Dict[str, Vendor] = {vendor.name: vendor for vendor in (nvidia.VENDOR, amd.VENDOR, intel.VENDOR)}


def names() -> List[str]:
    """Names of all vendors, in the order in which they are shown."""
    return list(VENDORS)
