# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's own version, as the evidence names it; the same as in galaxy.yml."""

from __future__ import annotations

VERSION = "1.0.0"
