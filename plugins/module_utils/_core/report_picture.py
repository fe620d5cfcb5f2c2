# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report's picture: every node with its GPUs, each drawn by its state.

A GPU's state shows in colour and in the mark inside; its vendor in the shape's corners and in words.
Few nodes get a row each, many get blocks side by side, very many one tile each.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core.markup import attribute, element, text

Json = Mapping[str, Any]

WIDTH = 1110
_ROWS_UP_TO, _BLOCKS_UP_TO = 40, 400
_STATES = {
    "opened": "opened in a pod",
    "busy": "busy with other pods",
    "failed": "a check of it failed",
    "closed": "not opened",
    "extra": "offered, but there is no such GPU",
    "none": "node without GPU",
}
_MARKS = {
    "opened": "M{a} {m} L{c} {d} L{e} {a}",
    "busy": "M{a} {m} L{e} {m}",
    "failed": "M{a} {a} L{e} {e} M{e} {a} L{a} {e}",
    "closed": "M{a} {a} L{e} {e} M{e} {a} L{a} {e}",
    "extra": "M{a} {m} L{e} {m} M{m} {a} L{m} {e}",
    "none": "",
}
# A node's status may claim any number; the picture need not show them all.
_MOST_EXTRA = 64
# Worst first: what a tile of a whole node shows.
_ORDER = ("failed", "extra", "closed", "busy", "opened", "none")


def gpu_states(resource: Json, failed_devices: int) -> List[str]:
    """The state of each GPU of one node and resource, worst first, plus one C(extra) for each that is offered beyond."""
    physical = int(resource.get("physical") or 0)
    expected = int(resource.get("expected") or physical)
    failed = min(physical, failed_devices)
    opened = min(int(resource.get("opened") or 0), physical - failed)
    busy = min(int(resource.get("busy") or 0), physical - failed - opened)
    extra = min(_MOST_EXTRA, max(0, int(resource.get("capacity") or 0) - expected))
    closed = physical - failed - opened - busy
    return ["failed"] * failed + ["extra"] * extra + ["closed"] * closed + ["busy"] * busy + ["opened"] * opened


def failed_by_place(checks: Sequence[Json]) -> Dict[Tuple[str, str], Set[str]]:
    """Node and resource to the devices of failed checks, and "" for a failed check that names no device."""
    found: Dict[Tuple[str, str], Set[str]] = {}
    for check in checks:
        if check.get("status") == "fail":
            key = (str(check.get("node") or ""), str(check.get("resource") or ""))
            found.setdefault(key, set()).add(str(check.get("device") or ""))
    return found


def shape(kind: int, x: float, y: float, size: float, state: str) -> str:
    """One GPU: the outline for the vendor (C(kind)), the mark for the state."""
    css = f'class="gpu {state}"'
    if kind == 0:
        outline = f'<rect {css} x="{x:g}" y="{y:g}" width="{size:g}" height="{size:g}"/>'
    elif kind == 1:
        outline = f'<rect {css} x="{x:g}" y="{y:g}" width="{size:g}" height="{size:g}" rx="{size * 0.42:g}"/>'
    else:
        outline = f'<polygon {css} points="{_points(kind, x, y, size)}"/>'
    if not _MARKS[state] or size < 9:
        return outline
    at = {"a": 0.3, "c": 0.45, "d": 0.7, "e": 0.72, "m": 0.52}
    path = _MARKS[state].format(**{key: "{" + key + "}" for key in at})
    drawn = _place(path, at, x, y, size)
    dark = " dark" if state in ("closed", "extra") else ""
    return outline + f'<path class="mark{dark}" d="{drawn}"/>'


def _points(kind: int, x: float, y: float, size: float) -> str:
    """A square with its upper right corner cut off, or a hexagon."""
    if kind == 2:
        corners = [(0.0, 0.0), (0.62, 0.0), (1.0, 0.38), (1.0, 1.0), (0.0, 1.0)]
    else:
        corners = [(0.25, 0.0), (0.75, 0.0), (1.0, 0.5), (0.75, 1.0), (0.25, 1.0), (0.0, 0.5)]
    return " ".join(f"{x + across * size:g},{y + down * size:g}" for across, down in corners)


def _place(path: str, at: Mapping[str, float], x: float, y: float, size: float) -> str:
    """A mark's path, whose letters are parts of the size, as coordinates; they come in pairs of x and y."""
    words, across = [], True
    for word in path.split():
        command = word[0] if word[0] in "ML" else ""
        key = word[len(command) :].strip("{}")
        words.append(f"{command}{(x if across else y) + at[key] * size:.4g}")
        across = not across
    return " ".join(words)


def render(evidence: Json) -> str:
    """The picture as one SVG element, with its legend."""
    nodes = list(evidence.get("nodes") or [])
    if not nodes:
        return '<p class="quiet">No node was looked at.</p>'
    vendors = sorted({str(item.get("vendor")) for node in nodes for item in node.get("resources") or []})
    kinds = {vendor: min(index, 3) for index, vendor in enumerate(vendors)}
    failed = failed_by_place(evidence.get("checks") or [])
    if len(nodes) <= _ROWS_UP_TO:
        body, height = _rows(nodes, kinds, failed)
    elif len(nodes) <= _BLOCKS_UP_TO:
        body, height = _blocks(nodes, kinds, failed)
    else:
        body, height = _tiles(nodes, failed)
    label = attribute("Nodes and their GPUs; the same numbers are in the table below")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="100%" role="img"'
    svg = f"{head} aria-label={label}>{body}</svg>"
    return svg + _legend(kinds, nodes, failed)


def _node_failed(node: Json, failed: Mapping[Tuple[str, str], Set[str]]) -> bool:
    names = {str(item.get("name")) for item in node.get("resources") or []} | {""}
    return any((str(node.get("name")), name) in failed for name in names)


def _states(node: Json, failed: Mapping[Tuple[str, str], Set[str]]) -> List[Tuple[Json, List[str]]]:
    found = []
    for item in node.get("resources") or []:
        devices = failed.get((str(node.get("name")), str(item.get("name"))), set()) - {""}
        found.append((item, gpu_states(item, len(devices))))
    return found


def _equation(item: Json) -> str:
    parts = [item.get("physical")]
    if item.get("expected") not in (None, item.get("physical")):
        parts.append(item.get("expected"))
    parts += [item.get("capacity"), item.get("allocatable")]
    last = str(item.get("opened") or 0) + (f" (+{item['busy']} busy)" if item.get("busy") else "")
    return " · ".join(["?" if part is None else str(part) for part in parts] + [last])


def holds(item: Json) -> bool:
    """Whether physical (or expected) = capacity = allocatable, and all GPUs are opened or busy."""
    physical = item.get("physical")
    wanted = item.get("expected") if item.get("expected") is not None else physical
    seen = int(item.get("opened") or 0) + int(item.get("busy") or 0)
    return wanted == item.get("capacity") == item.get("allocatable") and seen == physical


def _rows(nodes: Sequence[Json], kinds: Mapping[str, int], failed: Mapping[Tuple[str, str], Set[str]]) -> Tuple[str, float]:
    size, gap, left, right = 24, 6, 330, 190
    per_line = (WIDTH - left - right) // (size + gap)
    parts: List[str] = []
    y = 4.0
    for node in nodes:
        entries = _states(node, failed)
        bad = _node_failed(node, failed)
        css = "label bad" if bad else "label"
        parts.append(f'<text class="{css}" x="0" y="{y + 17:g}">{text(_short(node.get("name"), 22))}</text>')
        if not entries:
            parts.append(f'<text class="small" x="{left}" y="{y + 17:g}">no GPU</text>')
            y += size + 14
        for item, states in entries:
            words = text(_short(item.get("name"), 24))
            parts.append(f'<text class="small" x="165" y="{y + 17:g}">{words}</text>')
            lines = max(1, -(-len(states) // per_line))
            drawn = [
                shape(
                    kinds[str(item.get("vendor"))],
                    left + index % per_line * (size + gap),
                    y + index // per_line * (size + gap),
                    size,
                    state,
                )
                for index, state in enumerate(states)
            ]
            title = element("title", text(f"{node.get('name')} {item.get('name')}: {_words(states)}"))
            parts.append(f"<g>{title}{''.join(drawn)}</g>")
            good = holds(item) and not bad
            mark = "✓" if good else "✕"
            css = "good" if good else "bad"
            parts.append(
                f'<text class="{css}" x="{WIDTH}" y="{y + 17:g}" text-anchor="end">{mark} {text(_equation(item))}</text>'
            )
            y += lines * (size + gap) + 8
    return "".join(parts), y


def _blocks(nodes: Sequence[Json], kinds: Mapping[str, int], failed: Mapping[Tuple[str, str], Set[str]]) -> Tuple[str, float]:
    size, gap, columns = 12, 3, 6
    column_width = WIDTH / columns
    per_line = int((column_width - 16) // (size + gap))
    parts: List[str] = []
    y, tallest = 0.0, 0.0
    for number, node in enumerate(nodes):
        column = number % columns
        if column == 0 and number:
            y, tallest = y + tallest + 14, 0.0
        x = column * column_width
        bad = _node_failed(node, failed)
        css = "small bad" if bad else "small"
        parts.append(
            f'<text class="{css}" x="{x:g}" y="{y + 12:g}">{"✕ " if bad else ""}{text(_short(node.get("name"), 22))}</text>'
        )
        drawn: List[str] = []
        flat = [(item, state) for item, states in _states(node, failed) for state in states]
        for index, (item, state) in enumerate(flat):
            place = (x + index % per_line * (size + gap), y + 18 + index // per_line * (size + gap))
            drawn.append(shape(kinds[str(item.get("vendor"))], *place, size, state))
        if not flat:
            drawn.append(shape(0, x, y + 18, size, "none"))
        title = element("title", text(f"{node.get('name')}: {_words([state for _item, state in flat])}"))
        parts.append(f"<g>{title}{''.join(drawn)}</g>")
        tallest = max(tallest, 18 + max(1, -(-len(flat) // per_line)) * (size + gap))
    return "".join(parts), y + tallest + 4


def _tiles(nodes: Sequence[Json], failed: Mapping[Tuple[str, str], Set[str]]) -> Tuple[str, float]:
    size = 14 if len(nodes) <= 2000 else 11
    gap = 2
    per_line = WIDTH // (size + gap)
    parts: List[str] = []
    for index, node in enumerate(nodes):
        states = [state for _item, found in _states(node, failed) for state in found]
        worst = "failed" if _node_failed(node, failed) else next((state for state in _ORDER if state in states), "none")
        drawn = shape(0, index % per_line * (size + gap) + 1, index // per_line * (size + gap) + 1, size - 1, worst)
        title = element("title", text(f"{node.get('name')}: {_words(states)}"))
        parts.append(f"<g>{title}{drawn}</g>")
    return "".join(parts), -(-len(nodes) // per_line) * (size + gap) + 4.0


def _words(states: Sequence[str]) -> str:
    counted = [f"{states.count(state)} {_STATES[state]}" for state in _ORDER if state in states]
    return ", ".join(counted) or "no GPU"


def _short(name: Any, most: int) -> str:
    words = str(name)
    return words if len(words) <= most else words[: most - 1] + "…"


def _legend(kinds: Mapping[str, int], nodes: Sequence[Json], failed: Mapping[Tuple[str, str], Set[str]]) -> str:
    used = {state for node in nodes for _item, states in _states(node, failed) for state in states}
    used |= {"none"} if len(nodes) > _ROWS_UP_TO and any(not node.get("resources") for node in nodes) else set()
    used |= {"failed"} if len(nodes) > _BLOCKS_UP_TO and any(_node_failed(node, failed) for node in nodes) else set()
    items = [_key(shape(0, 1, 1, 14, state), _STATES[state]) for state in _ORDER if state in used]
    if len(nodes) <= _BLOCKS_UP_TO:
        items += [_key(shape(kind, 1, 1, 14, "none"), vendor) for vendor, kind in kinds.items()]
    else:
        items.append("<span>one tile a node, by the worst of its GPUs</span>")
    if len(nodes) <= _ROWS_UP_TO:
        items.append("<span>numbers: physical · capacity · allocatable · opened</span>")
    return f'<div class="legend">{"".join(items)}</div>'


def _key(drawn: str, words: str) -> str:
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">{drawn}</svg>'
    return f"<span>{svg}{text(words)}</span>"
