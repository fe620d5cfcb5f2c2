# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Display controllers that are no GPUs: those of baseboard controllers and of virtual machines, by PCI vendor id.

Source: pci.ids. None of these vendors makes anything that computes.
"""

from __future__ import annotations

from typing import Dict, Tuple

# PCI vendor id to kind (bmc, virtual) and name.
DISPLAYS: Dict[str, Tuple[str, str]] = {
    "1a03": ("bmc", "ASPEED"),
    "102b": ("bmc", "Matrox"),
    "18ca": ("bmc", "XGI"),
    "19e5": ("bmc", "Huawei iBMC"),
    "126f": ("bmc", "Silicon Motion"),
    "1234": ("virtual", "QEMU"),
    "1b36": ("virtual", "QEMU QXL"),
    "1af4": ("virtual", "Virtio"),
    "1013": ("virtual", "Cirrus Logic"),
    "15ad": ("virtual", "VMware"),
    "1414": ("virtual", "Hyper-V"),
    "80ee": ("virtual", "VirtualBox"),
}
