# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel's log says of GPUs."""

from __future__ import annotations

import errno
import os
import re
from typing import Dict, List, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import GpuRecord, Problem, problem
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import KernelMessage, Vendor

PATH = "/dev/kmsg"
_RECORD_BYTES = 8192  # the kernel's own limit of one record
_READ_LIMIT = 8 * 1024**2


def read(root: Root) -> str:
    """The kernel's log from its beginning as far as it is kept, "" if it cannot be read."""
    if not root.is_live:
        return root.read(PATH)
    try:
        handle = os.open(PATH, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        root.unreadable[PATH] = error.strerror or str(error)
        return ""
    chunks: List[bytes] = []
    size = 0
    try:
        while size < _READ_LIMIT:
            try:
                chunks.append(os.read(handle, _RECORD_BYTES))
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # the record was overwritten meanwhile; the next one is there
                if error.errno != errno.EAGAIN:
                    root.unreadable[PATH] = error.strerror or str(error)
                break
            if not chunks[-1]:
                break
            size += len(chunks[-1])
    finally:
        os.close(handle)
    return b"".join(chunks).decode("utf-8", "replace")


def problems(log: str, vendor: Vendor, gpus: Sequence[GpuRecord]) -> List[Problem]:
    """Trouble with the given GPUs: one problem for each GPU and kind of message, with all its different details."""
    found: List[Problem] = []
    for kind in vendor.reading.kernel_messages:
        for address, details in sorted(_by_address(log, kind, gpus).items()):
            counted = ", ".join(f"{detail} ({count} times)" if count > 1 else detail for detail, count in details.items())
            message = f"{vendor.title} GPU {address}: the kernel's log tells of {kind.title}{counted}"
            found.append(problem("kernel_errors", address, message, kind.hint))
    return found


def _by_address(log: str, kind: KernelMessage, gpus: Sequence[GpuRecord]) -> Dict[str, Dict[str, int]]:
    """PCI address to what is told of it and how often."""
    found: Dict[str, Dict[str, int]] = {}
    for match in re.finditer(kind.pattern, log):
        told = match.group("address").lower()
        detail = " ".join((match.groupdict().get("detail") or "").split())
        if detail in kind.ignored:
            continue
        for gpu in gpus:
            # Some messages name the device without its function.
            if told in (gpu["pci_address"], gpu["pci_address"].rsplit(".", 1)[0]):
                counts = found.setdefault(gpu["pci_address"], {})
                counts[detail] = counts.get(detail, 0) + 1
    return found
