# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's container images, packed from this machine's files into one archive: no registry is asked."""

from __future__ import annotations

from gpuops_lab.images import store
from gpuops_lab.images.build import ImageArchive, build, default_path, input_digest

__all__ = ["ImageArchive", "build", "default_path", "input_digest", "store"]
