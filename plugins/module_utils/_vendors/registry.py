# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors that the collection knows. A new vendor is one file and one line here."""

from __future__ import annotations

from typing import Dict, List, Optional

from ansible_collections.gpuops.k8s.plugins.module_utils._vendors import amd, intel, nvidia
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

VENDORS: Dict[str, Vendor] = {vendor.name: vendor for vendor in (nvidia.VENDOR, amd.VENDOR, intel.VENDOR)}


def names() -> List[str]:
    """Names of all vendors, in the order in which they are shown."""
    return list(VENDORS)


def by_pci_vendor_id(vendor_id: str) -> Optional[Vendor]:
    """The vendor with this PCI vendor id (lower-case hex without C(0x)), None if unknown."""
    return next((vendor for vendor in VENDORS.values() if vendor.pci_vendor_id == vendor_id), None)


def by_resource(resource: str) -> Optional[Vendor]:
    """The vendor that owns an extended resource name, None if no vendor does."""
    return next((vendor for vendor in VENDORS.values() if resource in vendor.resources.values()), None)
