# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Style and script of the report. Nothing in it is fetched from anywhere.

The script uses neither "less than" nor "and" signs, so that the page is well-formed XML too.
"""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f7f7f5; --sheet: #ffffff; --ink: #1d2327; --quiet: #5c666d; --line: #dfe2e0; --wash: #f0f2f0;
  --pass: #1f7a4d; --pass-wash: #e3f2ea; --fail: #b3261e; --fail-wash: #fbe9e7; --skip: #8a6100; --skip-wash: #fbf1dc;
  --busy: #3d5a98; --idle: #aab2b6; --mark: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14181a; --sheet: #1c2124; --ink: #e4e8e9; --quiet: #9aa5ab; --line: #31383c; --wash: #252b2f;
    --pass: #5cc391; --pass-wash: #17372a; --fail: #ff8a80; --fail-wash: #43211f; --skip: #e0b354; --skip-wash: #3a2f16;
    --busy: #8fabea; --idle: #5f6a70; --mark: #14181a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 28px 24px 72px; }
h1 { margin: 0; font-size: 34px; line-height: 1.15; letter-spacing: -0.01em; }
h2 { margin: 0 0 14px; font-size: 18px; }
p { margin: 0 0 8px; }
code, pre, .mono { font-family: ui-monospace, Menlo, "Liberation Mono", "DejaVu Sans Mono", monospace;
  font-size: 13px; }
section { background: var(--sheet); border: 1px solid var(--line); border-radius: 10px; padding: 20px 22px;
  margin-top: 18px;
  overflow-x: auto; }
.verdict { display: flex; gap: 20px; align-items: center; border-left: 8px solid var(--fail); }
.verdict.pass { border-left-color: var(--pass); }
.seal { flex: none; width: 64px; height: 64px; border-radius: 50%; display: grid; place-items: center; font-size: 34px;
  font-weight: 700; color: var(--fail); background: var(--fail-wash); }
.pass .seal { color: var(--pass); background: var(--pass-wash); }
.facts { display: flex; flex-wrap: wrap; gap: 4px 22px; color: var(--quiet); margin-top: 6px; }
.facts b { color: var(--ink); font-weight: 600; }
.reasons { margin: 12px 0 0; padding-left: 20px; }
.reasons li { margin: 3px 0; }
.quiet { color: var(--quiet); }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--quiet); font-size: 13px; border-bottom: 1px solid var(--line);
  padding: 6px 10px; }
td { border-bottom: 1px solid var(--line); padding: 7px 10px; vertical-align: top; }
tr:last-child td { border-bottom: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.name { white-space: nowrap; font-weight: 600; }
.tag { display: inline-block; min-width: 54px; text-align: center; border-radius: 5px; padding: 0 8px; font-size: 13px;
  font-weight: 600;
  white-space: nowrap; }
.tag.pass { color: var(--pass); background: var(--pass-wash); }
.tag.fail { color: var(--fail); background: var(--fail-wash); }
.tag.skip { color: var(--skip); background: var(--skip-wash); }
.card { border: 1px solid var(--line); border-left: 4px solid var(--fail); border-radius: 8px; padding: 14px 16px;
  margin-top: 12px; }
.card h3 { margin: 0 0 2px; font-size: 16px; }
.card dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 14px; margin: 10px 0 0; }
.card dt { color: var(--quiet); }
.card dd { margin: 0; overflow-wrap: anywhere; }
.card .next { font-weight: 600; }
.bar { display: flex; height: 10px; width: 100%; min-width: 160px; border-radius: 5px; overflow: hidden;
  background: var(--wash); }
.bar i { display: block; }
.bar .pass { background: var(--pass); } .bar .fail { background: var(--fail); }
.bar .skip { background: repeating-linear-gradient(45deg, var(--skip) 0 3px, transparent 3px 6px); }
.tools { display: flex; flex-wrap: wrap; gap: 10px; margin-bottom: 12px; align-items: center; }
.tools[hidden] { display: none; }
input, select { font: inherit; color: inherit; background: var(--ground); border: 1px solid var(--line);
  border-radius: 6px; padding: 5px 10px; }
input { flex: 1; min-width: 200px; }
.reason { overflow-wrap: anywhere; min-width: 320px; }
.value { overflow-wrap: anywhere; min-width: 110px; max-width: 200px; }
details { border-top: 1px solid var(--line); }
details:first-of-type { border-top: 0; }
summary { cursor: pointer; padding: 7px 0; overflow-wrap: anywhere; }
pre { margin: 0 0 12px; padding: 12px 14px; background: var(--wash); border-radius: 6px; overflow: auto;
  max-height: 420px; }
a { color: inherit; text-underline-offset: 3px; }
svg text { fill: var(--ink); font-size: 13px; }
svg .label { font-weight: 600; } svg .small { fill: var(--quiet); font-size: 12px; } svg .bad { fill: var(--fail);
  font-weight: 600; }
svg .good { fill: var(--pass); font-weight: 600; }
.gpu { stroke-width: 1.5; }
.gpu.opened { fill: var(--pass); stroke: var(--pass); } .gpu.busy { fill: var(--busy); stroke: var(--busy); }
.gpu.failed { fill: var(--fail); stroke: var(--fail); }
.gpu.closed { fill: none; stroke: var(--fail); } .gpu.extra { fill: none; stroke: var(--fail); stroke-dasharray: 3 2; }
.gpu.none { fill: none; stroke: var(--idle); }
.mark { fill: none; stroke: var(--mark); stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
.mark.dark { stroke: var(--fail); } .mark.idle { stroke: var(--idle); }
.legend { display: flex; flex-wrap: wrap; gap: 6px 20px; margin-top: 14px; color: var(--quiet); font-size: 13px;
  align-items: center; }
.legend span { display: inline-flex; align-items: center; gap: 7px; }
footer { color: var(--quiet); font-size: 13px; margin-top: 18px; }
@media print { body { background: #fff; } section { break-inside: avoid; } .tools { display: none; } }
"""

SCRIPT = """
(function () {
  var tools = document.getElementById("tools");
  var rows = Array.prototype.slice.call(document.querySelectorAll("#checks tbody tr"));
  var word = document.getElementById("word"), status = document.getElementById("status");
  var phase = document.getElementById("phase");
  var count = document.getElementById("count");
  function fits(row) {
    if (status.value) { if (row.getAttribute("data-status") !== status.value) { return false; } }
    if (phase.value) { if (row.getAttribute("data-phase") !== phase.value) { return false; } }
    var words = word.value.toLowerCase().split(/ +/);
    var content = row.textContent.toLowerCase();
    return words.every(function (part) { return content.indexOf(part) !== -1; });
  }
  function update() {
    var shown = 0;
    rows.forEach(function (row) { var fit = fits(row); row.hidden = !fit; if (fit) { shown += 1; } });
    count.textContent = shown + " of " + rows.length;
  }
  tools.hidden = false;
  word.addEventListener("input", update);
  status.addEventListener("change", update);
  phase.addEventListener("change", update);
  function open() {
    var target = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (target) { if (target.tagName.toLowerCase() === "details") { target.open = true; target.scrollIntoView(); } }
  }
  window.addEventListener("hashchange", open);
  update();
  open();
}());
"""
