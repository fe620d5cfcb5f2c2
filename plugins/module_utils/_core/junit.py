# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence as JUnit XML: one testsuite a phase, one testcase a check."""

from __future__ import annotations

from typing import Any, List, Mapping

from ansible_collections.gpuops.k8s.plugins.module_utils._core.checks import FAIL, PHASES, SKIP
from ansible_collections.gpuops.k8s.plugins.module_utils._core.markup import attribute, clean, show, text

Json = Mapping[str, Any]


def render(evidence: Json) -> str:
    """The whole document, with XML declaration. Times are in seconds.

    A run whose verdict is C(fail) without a failed check gets one failed testcase named verdict, so that
    a reader of JUnit alone never sees a green run that was none.
    """
    checks = list(evidence.get("checks") or [])
    phases = [*PHASES, *sorted({str(check["phase"]) for check in checks} - set(PHASES))]
    suites = [_suite(phase, [check for check in checks if check["phase"] == phase], evidence) for phase in phases]
    extra = _verdict_suite(evidence, checks)
    totals = _totals(checks)
    head = (
        f'<testsuites name="gpuops.k8s" tests="{totals["tests"] + (1 if extra else 0)}" '
        f'failures="{totals["failures"] + (1 if extra else 0)}" skipped="{totals["skipped"]}" errors="0" '
        f"time={attribute(_time(evidence.get('seconds')))}>"
    )
    body = [suite for suite in suites if suite] + ([extra] if extra else [])
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *body, "</testsuites>", ""])


def _totals(checks: List[Json]) -> "dict[str, int]":
    return {
        "tests": len(checks),
        "failures": sum(1 for check in checks if check["status"] == FAIL),
        "skipped": sum(1 for check in checks if check["status"] == SKIP),
    }


def _time(value: Any) -> str:
    return f"{float(value or 0):.3f}"


def _suite(phase: str, checks: List[Json], evidence: Json) -> str:
    if not checks:
        return ""
    totals = _totals(checks)
    total_time = sum(float(check.get("seconds") or 0) for check in checks)
    head = (
        f'  <testsuite name={attribute(phase)} tests="{totals["tests"]}" failures="{totals["failures"]}" '
        f'skipped="{totals["skipped"]}" errors="0" time="{total_time:.3f}" timestamp={attribute(_stamp(evidence))}>'
    )
    return "\n".join([head, *[_case(check) for check in checks], "  </testsuite>"])


def _stamp(evidence: Json) -> str:
    """The start without a zone, as the format has it."""
    return str(evidence.get("started") or "")[:19]


def _case(check: Json) -> str:
    place = ".".join(str(check.get(key)) for key in ("node", "resource") if check.get(key)) or "cluster"
    names = f"name={attribute(check['id'])} classname={attribute(place)}"
    head = f"    <testcase {names} time={attribute(_time(check.get('seconds')))}"
    if check["status"] == FAIL:
        inner = f"<failure message={attribute(check.get('reason') or 'failed')}>{text(_story(check))}</failure>"
    elif check["status"] == SKIP:
        inner = f"<skipped message={attribute(check.get('reason') or 'skipped')}/>"
    elif check.get("device"):
        inner = f"<system-out>{text('device ' + clean(check['device']))}</system-out>"
    else:
        return head + "/>"
    return f"{head}>{inner}</testcase>"


def _story(check: Json) -> str:
    lines = [str(check.get("reason") or "failed")]
    if check.get("device"):
        lines.append(f"device: {check['device']}")
    lines.append(f"expected: {show(check.get('expected'))}")
    lines.append(f"observed: {show(check.get('observed'))}")
    if check.get("hint"):
        lines.append(f"next step: {check['hint']}")
    if check.get("evidence"):
        lines.append(f"evidence: {show(check['evidence'])}")
    return "\n".join(lines)


def _verdict_suite(evidence: Json, checks: List[Json]) -> str:
    if evidence.get("verdict") == "pass" or any(check["status"] == FAIL for check in checks):
        return ""
    reasons = [str(reason) for reason in evidence.get("reasons") or ["the verdict is not pass"]]
    failure = f"<failure message={attribute(reasons[0])}>{text(chr(10).join(reasons))}</failure>"
    case = f'    <testcase name="verdict" classname="cluster" time="0.000">{failure}</testcase>'
    head = '  <testsuite name="verdict" tests="1" failures="1" skipped="0" errors="0" time="0.000" '
    head += f"timestamp={attribute(_stamp(evidence))}>"
    return "\n".join([head, case, "  </testsuite>"])
