# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors that carry one line for a person: what was tried, on what, what came, what to do."""

from __future__ import annotations


def _one_line(text: str) -> str:
    return " ".join(text.split())


class GpuOpsError(Exception):
    """Something that a user can cause or mend.

    C(message) says what was tried, on what and what came; C(hint) says what to do.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def line(self) -> str:
        """Message and hint as one line, without line breaks."""
        message = _one_line(self.message)
        hint = _one_line(self.hint)
        if not hint:
            return message
        if message and message[-1] not in ".!?":
            message += "."
        return f"{message} {hint}"

    def __str__(self) -> str:
        return self.line()


class ApiError(GpuOpsError):
    """A call of the Kubernetes API that failed.

    C(status) is the HTTP status, 0 when no answer came. C(reason) is the API's own word for it
    (Forbidden, NotFound, Invalid, Expired), or Unreachable, Timeout, Tls when there was no answer.
    C(body_message) is the message of the API's Status object, "" without one.
    """

    def __init__(self, message: str, hint: str = "", *, status: int = 0, reason: str = "", body_message: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.reason = reason
        self.body_message = body_message
