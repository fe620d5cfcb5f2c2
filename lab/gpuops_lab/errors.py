# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors that a user can cause: one line, with the way out."""

from __future__ import annotations


class LabError(Exception):
    """What was tried, on what and what came, plus what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def line(self) -> str:
        """The error as the command line prints it, one line."""
        return f"{self.message}; {self.hint}" if self.hint else self.message
