# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small parts of requests and answers of the API."""

from __future__ import annotations

from typing import Any, Dict, List


def retry_after(response: Any) -> float:
    """Seconds that the server asks to wait, 0 if it does not."""
    try:
        return float(response.headers.get("Retry-After") or 0)
    except ValueError:
        return 0.0


def selectors(label_selector: str, field_selector: str) -> Dict[str, Any]:
    """The query of a list, without empty selectors."""
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in query.items() if value}


def dry(dry_run: bool) -> Dict[str, Any]:
    """The query of a change that is only to be tried."""
    return {"dryRun": "All"} if dry_run else {}


def with_kind(page: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Items of a list do not repeat their kind; an object that leaves this door always has one."""
    kind = str(page.get("kind") or "")
    kind = kind[: -len("List")] if kind.endswith("List") else kind
    return [{"apiVersion": page.get("apiVersion"), "kind": kind, **item} for item in page.get("items") or []]
