# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence as one self-contained HTML page, which is well-formed XML too."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._core import report_picture
from ansible_collections.gpuops.k8s.plugins.module_utils._core.checks import CHECKS, FAIL, PASS, PHASES, SKIP
from ansible_collections.gpuops.k8s.plugins.module_utils._core.markup import attribute, element, seconds, show, text
from ansible_collections.gpuops.k8s.plugins.module_utils._core.report_style import SCRIPT, STYLE

Json = Mapping[str, Any]

# A page that a browser opens at once; the rest is in evidence.json, and the page says so.
_MOST_PASSED, _MOST_CARDS, _MOST_REASONS, _MOST_EQUATIONS = 3000, 50, 12, 1000
_MOST_OBJECT_CHARACTERS, _MOST_PAGE_CHARACTERS = 20_000, 3_000_000
_WORDS = {PASS: "✓ pass", FAIL: "✕ fail", SKIP: "– skip"}


def render(evidence: Json) -> str:
    """The whole page for evidence of schema 1; C(objects) and C(reasons) may be missing."""
    passed = evidence.get("verdict") == PASS
    title = f"GPU verification: {'pass' if passed else 'fail'}"
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    shown = _shown_objects(evidence)
    body = [
        _headline(evidence, passed),
        _section("Nodes and GPUs", report_picture.render(evidence)),
        _section("The equation", _equations(evidence)),
        _failures(evidence, shown),
        _section("Phases", _phases(evidence)),
        _section("All checks", _all_checks(evidence, shown), id_="checks"),
        _objects(evidence, shown),
        f"<footer>gpuops.k8s {text(evidence.get('collection') or '')} · all of it is in evidence.json</footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml" lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f'<meta http-equiv="Content-Security-Policy" content={attribute(policy)}/>\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + f"\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _section(title: str, content: str, id_: Any = None) -> str:
    return element("section", f"<h2>{text(title)}</h2>{content}", id_=id_)


def _headline(evidence: Json, passed: bool) -> str:
    totals: Json = evidence.get("totals") or {}
    counted: Json = totals.get("checks") or {}
    cluster: Json = evidence.get("cluster") or {}
    facts = [
        f"<b>{text(totals.get('gpus', 0))}</b> GPUs on <b>{text(totals.get('nodes', 0))}</b> nodes",
        f"<b>{text(counted.get(PASS, 0))}</b> checks passed, <b>{text(counted.get(FAIL, 0))}</b> failed, "
        f"<b>{text(counted.get(SKIP, 0))}</b> skipped",
        f"Kubernetes <b>{text(cluster.get('version'))}</b>",
        f"started <b>{text(evidence.get('started'))}</b>, took <b>{text(seconds(evidence.get('seconds')))}</b>",
    ]
    busy = sum(
        int(resource.get("busy") or 0) for node in evidence.get("nodes") or [] for resource in node.get("resources") or []
    )
    words = "Not proven" if not passed else f"Every idle GPU is proven, {busy} in use" if busy else "Every GPU is proven"
    lines = "".join(f"<span>{fact}</span>" for fact in facts)
    seal = "✓" if passed else "✕"
    inner = f'<div class="seal" aria-hidden="true">{seal}</div><div><h1>{words}</h1><div class="facts">{lines}</div>'
    inner += f'<p class="quiet">Verdict: <b>{text(evidence.get("verdict"))}</b></p>{_reasons(evidence)}</div>'
    return f'<section class="verdict {"pass" if passed else "fail"}">{inner}</section>'


def _reasons(evidence: Json) -> str:
    reasons = list(evidence.get("reasons") or [])
    if not reasons:
        return ""
    items = "".join(f"<li>{text(reason)}</li>" for reason in reasons[:_MOST_REASONS])
    more = len(reasons) - _MOST_REASONS
    return f'<ul class="reasons">{items}{f"<li>and {more} more</li>" if more > 0 else ""}</ul>'


def _equations(evidence: Json) -> str:
    rows = [(node, item) for node in evidence.get("nodes") or [] for item in node.get("resources") or []]
    if not rows:
        return '<p class="quiet">No node has a GPU that should be offered.</p>'
    rows.sort(key=lambda row: report_picture.holds(row[1]))
    shared = any(item.get("expected") not in (None, item.get("physical")) for _node, item in rows)
    keys = ["physical", *(["expected"] if shared else []), "capacity", "allocatable", "opened", "busy"]
    lines = [_equation_row(node, item, keys) for node, item in rows[:_MOST_EQUATIONS]]
    wanted = "expected" if shared else "physical"
    note = f"{wanted} = capacity = allocatable, and opened + busy = physical, on every node."
    left = len(rows) - _MOST_EQUATIONS
    note += f" {left} more nodes and resources are in evidence.json." if left > 0 else ""
    return f'<p class="quiet">{note}</p>' + _table(["node", "resource", *keys, "holds"], lines, numbers=keys)


def _equation_row(node: Json, item: Json, keys: Sequence[str]) -> str:
    cells = "".join(f'<td class="number">{text(show(item.get(key)))}</td>' for key in keys)
    verdict = _tag(PASS if report_picture.holds(item) else FAIL)
    name = f'<td class="name">{text(node.get("name"))}</td><td>{text(item.get("name"))}</td>'
    return f"<tr>{name}{cells}<td>{verdict}</td></tr>"


def _table(heads: Sequence[str], lines: Sequence[str], numbers: Sequence[str] = ()) -> str:
    cells = "".join(
        f'<th scope="col"{" class=" + attribute("number") if head in numbers else ""}>{text(head)}</th>' for head in heads
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _tag(status: str) -> str:
    return f'<span class="tag {status if status in _WORDS else FAIL}">{text(_WORDS.get(status, status))}</span>'


def _title(check: Json) -> str:
    kind = CHECKS.get(str(check.get("id")))
    return kind.title if kind else ""


def _place(check: Json) -> str:
    return " · ".join(str(check.get(key)) for key in ("node", "resource", "device") if check.get(key)) or "cluster"


def _failures(evidence: Json, shown: Mapping[str, str]) -> str:
    failed = [check for check in evidence.get("checks") or [] if check.get("status") == FAIL]
    if not failed:
        return ""
    cards = []
    for check in failed[:_MOST_CARDS]:
        pairs = [("where", text(_place(check))), ("expected", text(show(check.get("expected"))))]
        pairs += [("observed", text(show(check.get("observed")))), ("reason", text(check.get("reason")))]
        pairs.append(("next step", f'<span class="next">{text(check.get("hint") or "see the reason")}</span>'))
        if check.get("evidence"):
            pairs.append(("evidence", _references(check, shown)))
        terms = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in pairs)
        head = f'<h3>{text(check.get("id"))}</h3><p class="quiet">{text(_title(check))}</p>'
        cards.append(f'<div class="card">{head}<dl>{terms}</dl></div>')
    left = len(failed) - _MOST_CARDS
    note = f'<p class="quiet">{left} more failed checks are in the table of all checks.</p>' if left > 0 else ""
    return _section(f"Failed checks ({len(failed)})", "".join(cards) + note)


def _references(check: Json, shown: Mapping[str, str]) -> str:
    links = []
    for reference in check.get("evidence") or []:
        anchor = shown.get(str(reference))
        words = f"<code>{text(reference)}</code>"
        links.append(f'<a href="#{anchor}">{words}</a>' if anchor else words)
    return ", ".join(links)


def _phases(evidence: Json) -> str:
    checks = list(evidence.get("checks") or [])
    known = [*PHASES, *sorted({str(check.get("phase")) for check in checks} - set(PHASES))]
    lines = []
    for phase in known:
        own = [check for check in checks if check.get("phase") == phase]
        counts = {status: sum(1 for check in own if check.get("status") == status) for status in (PASS, FAIL, SKIP)}
        time = max((float(check.get("seconds") or 0) for check in own), default=0.0)
        stripes = "".join(f'<i class="{status}" style="flex:{count}"></i>' for status, count in counts.items() if count)
        cells = "".join(f'<td class="number">{count}</td>' for count in counts.values())
        lines.append(
            f'<tr><td class="name">{text(phase)}</td><td><div class="bar">{stripes}</div></td>{cells}'
            f'<td class="number">{text(seconds(time) if own else "–")}</td></tr>'
        )
    note = '<p class="quiet">The checks of a phase run side by side, so its time is that of the slowest.</p>'
    heads = ["phase", "", "passed", "failed", "skipped", "time"]
    return note + _table(heads, lines, numbers=("passed", "failed", "skipped", "time"))


def _all_checks(evidence: Json, shown: Mapping[str, str]) -> str:
    order = {FAIL: 0, SKIP: 1, PASS: 2}
    checks = sorted(evidence.get("checks") or [], key=lambda check: order.get(str(check.get("status")), 0))
    if not checks:
        return '<p class="quiet">No check was made.</p>'
    kept = [check for check in checks if check.get("status") != PASS]
    passed = [check for check in checks if check.get("status") == PASS]
    lines = [_check_row(check, shown) for check in kept + passed[:_MOST_PASSED]]
    left = len(passed) - _MOST_PASSED
    note = f'<p class="quiet">{left} more passed checks are in evidence.json.</p>' if left > 0 else ""
    heads = ["status", "check", "where", "expected", "observed", "reason", "time"]
    return _filters(checks) + note + _table(heads, lines, numbers=("time",))


def _check_row(check: Json, shown: Mapping[str, str]) -> str:
    reason = text(check.get("reason")) if check.get("reason") else f'<span class="quiet">{text(_title(check))}</span>'
    if check.get("hint") and check.get("status") == FAIL:
        reason += f"<br/><b>Next:</b> {text(check['hint'])}"
    if check.get("evidence"):
        reason += f"<br/>{_references(check, shown)}"
    cells = [
        f"<td>{_tag(str(check.get('status')))}</td>",
        f'<td class="name">{text(check.get("id"))}</td>',
        f'<td class="value">{text(_place(check))}</td>',
        f'<td class="value">{text(show(check.get("expected")))}</td>',
        f'<td class="value">{text(show(check.get("observed")))}</td>',
        f'<td class="reason">{reason}</td>',
        f'<td class="number">{text(seconds(check.get("seconds")))}</td>',
    ]
    return f"<tr data-status={attribute(check.get('status'))} data-phase={attribute(check.get('phase'))}>{''.join(cells)}</tr>"


def _filters(checks: Sequence[Json]) -> str:
    phases = list(dict.fromkeys(str(check.get("phase")) for check in checks))
    phase_options = "".join(f"<option value={attribute(phase)}>{text(phase)}</option>" for phase in sorted(phases))
    return (
        '<div class="tools" id="tools" hidden="hidden">'
        '<input id="word" type="search" placeholder="node, check, device, word …" aria-label="Filter by words"/>'
        '<select id="status" aria-label="Filter by status"><option value="">every status</option>'
        '<option value="fail">failed</option><option value="skip">skipped</option>'
        '<option value="pass">passed</option></select>'
        f'<select id="phase" aria-label="Filter by phase"><option value="">every phase</option>{phase_options}</select>'
        '<span class="quiet" id="count"></span></div>'
    )


def _shown_objects(evidence: Json) -> Dict[str, str]:
    """References of the objects that the page holds, to their anchors; those of failed checks come first."""
    objects: Json = evidence.get("objects") or {}
    order = {FAIL: 0, SKIP: 1, PASS: 2}
    wanted: List[str] = []
    for check in sorted(evidence.get("checks") or [], key=lambda item: order.get(str(item.get("status")), 0)):
        wanted += [str(reference) for reference in check.get("evidence") or []]
    found: Dict[str, str] = {}
    size = 0
    for reference in dict.fromkeys([*wanted, *objects]):
        if reference in objects and size < _MOST_PAGE_CHARACTERS:
            size += min(_MOST_OBJECT_CHARACTERS, len(json.dumps(objects[reference], default=str)))
            found[reference] = f"object-{len(found) + 1}"
    return found


def _objects(evidence: Json, shown: Mapping[str, str]) -> str:
    objects: Json = evidence.get("objects") or {}
    if not objects:
        return ""
    parts = []
    for reference, anchor in shown.items():
        value = objects[reference]
        words = (
            value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str)
        )
        if len(words) > _MOST_OBJECT_CHARACTERS:
            words = words[:_MOST_OBJECT_CHARACTERS] + "\n… the rest is in evidence.json"
        parts.append(
            f'<details id="{anchor}"><summary><code>{text(reference)}</code></summary><pre>{text(words)}</pre></details>'
        )
    left = len(objects) - len(shown)
    note = f'<p class="quiet">{left} more objects are in evidence.json.</p>' if left > 0 else ""
    return _section("Evidence", "".join(parts) + note)
