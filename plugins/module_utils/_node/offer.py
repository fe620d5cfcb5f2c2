# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the GPUs that a node has Kubernetes is to offer."""

from __future__ import annotations

from typing import List, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import GpuRecord
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor


def sort_out(vendor: Vendor, gpus: List[GpuRecord], include_integrated: bool) -> Tuple[List[GpuRecord], List[GpuRecord]]:
    """The GPUs that are to be offered, and those that are not, with C(excluded) saying why.

    A virtual function without a driver is in neither: it is the idle share of a GPU that is listed already.
    """
    offered: List[GpuRecord] = []
    excluded: List[GpuRecord] = []
    for gpu in gpus:
        if gpu["virtual_function"] and not gpu["driver"]:
            continue
        gpu["excluded"] = _reason(vendor, gpu, gpus, include_integrated)
        (excluded if gpu["excluded"] else offered).append(gpu)
    return offered, excluded


def _reason(vendor: Vendor, gpu: GpuRecord, gpus: List[GpuRecord], include_integrated: bool) -> str:
    if gpu["state"] == "vfio":
        return "vfio"
    # A virtual function that the driver made device nodes for is used like a GPU; others belong to virtual machines.
    if gpu["virtual_function"] and not (gpu["state"] == "ready" and gpu["device_nodes"]):
        return "virtual_function"
    if _is_divided(vendor, gpu, gpus):
        return "divided"
    return "integrated" if gpu["integrated"] and not include_integrated else ""


def _is_divided(vendor: Vendor, gpu: GpuRecord, gpus: List[GpuRecord]) -> bool:
    """Whether its virtual functions stand for it, so that it would be counted twice."""
    shares = [other for other in gpus if other["physical_function"] == gpu["pci_address"]]
    enabled = bool(shares or gpu["virtual_functions"])
    return enabled and (any(share["driver"] for share in shares) or not vendor.offers_divided)
