# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether versions go together: the data is the vendors', the comparison is here."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import Problem, problem

_PART = re.compile(r"^(>=|<=|==|<|>)\s*v?(\d+(?:\.\d+)*)$")
_VERSION = re.compile(r"\d+(?:\.\d+)*")


def version_of(text: str) -> Optional[Tuple[int, ...]]:
    """The first dotted number of a text, C(v1.36.3+k3s1) as (1, 36, 3); None without one.

    Zeros at the end do not count, so that 1.18 equals 1.18.0.
    """
    match = _VERSION.search(text)
    if match is None:
        return None
    parts = [int(part) for part in match.group(0).split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def holds(condition: str, value: str) -> bool:
    """Whether a value is in a range (C(>=1.18,<1.18.1)) or is one of the words (C(volta|turing)). An empty value never is.

    Raises:
        ValueError: A part of the range is not an operator and a version.
    """
    if not value:
        return False
    if condition[0] not in "<>=":
        return value.lower() in condition.lower().split("|")
    version = version_of(value)
    return version is not None and all(_compare(part.strip(), version) for part in condition.split(","))


def _compare(part: str, version: Tuple[int, ...]) -> bool:
    match = _PART.match(part)
    bound = version_of(match.group(2)) if match else None
    if match is None or bound is None:
        raise ValueError(f"{part!r} is not an operator and a version")
    operator = match.group(1)
    if operator == "==":
        return version == bound
    if operator.startswith(">"):
        return version > bound or (operator == ">=" and version == bound)
    return version < bound or (operator == "<=" and version == bound)


def problems(rules: Sequence[Mapping[str, Any]], facts: Mapping[str, str], subject: str) -> List[Problem]:
    """The rules that hold for the facts, as problems of C(subject).

    Each rule has code, when (fact to condition), message, hint, source; the message may name facts in braces.
    """
    found: Dict[str, Problem] = {}
    for rule in rules:
        when: Mapping[str, str] = rule["when"]
        if when and all(holds(condition, facts.get(name, "")) for name, condition in when.items()):
            message = f"{subject}: {str(rule['message']).format(**facts)} ({rule['source']})"
            found[str(rule["code"])] = problem(str(rule["code"]), subject, message, str(rule["hint"]))
    return list(found.values())
