# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report and the JUnit file: well-formed, self-contained, escaped, and true to the evidence."""

from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpuops.k8s.plugins.module_utils._core import junit, report, report_picture

NASTY = "a<b>&\"'\x00\x1b[31m\ud800]]></script><script>alert(1)</script>"
XHTML = "{http://www.w3.org/1999/xhtml}"


def check(check_id="ASG-OPEN", phase="assignment", status="pass", **more):
    return {
        "id": check_id, "phase": phase, "node": "nv-1", "resource": "nvidia.com/gpu", "device": "", "status": status,
        "expected": 4, "observed": 4, "reason": "", "hint": "", "seconds": 0.4, "evidence": [], **more,
    }  # fmt: skip


def resource(physical=4, **more):
    return {
        "name": "nvidia.com/gpu", "vendor": "nvidia", "physical": physical, "expected": physical, "capacity": physical,
        "allocatable": physical, "opened": physical, "busy": 0, **more,
    }  # fmt: skip


def evidence(checks, nodes=None, **more):
    failed = [item for item in checks if item["status"] == "fail"]
    counts = {status: sum(item["status"] == status for item in checks) for status in ("pass", "fail", "skip")}
    if nodes is None:
        nodes = [{"name": "nv-1", "resources": [resource()]}, {"name": "cpu-1", "resources": []}]
    return {
        "schema": 1, "collection": "1.0.0", "started": "2026-12-03T12:00:00+00:00", "seconds": 12.3,
        "cluster": {"version": "v1.36.3", "driver": "process"}, "verdict": "fail" if failed else "pass",
        "reasons": [item["reason"] for item in failed],
        "totals": {"nodes": 1, "gpus": 4, "checks": counts},
        "nodes": nodes,
        "checks": checks, "objects": {}, **more,
    }  # fmt: skip


@pytest.fixture
def mixed():
    return evidence(
        [
            check(device="GPU-1", evidence=["pod/p"]),
            check(
                status="fail", device="GPU-2", reason=NASTY, hint="look at dmesg " + NASTY, evidence=["pod/q"], observed=NASTY
            ),
            check("LBL-TRUE", "labels", "skip", node="", resource="", reason="no labels in this run"),
            check("ENUM-COUNT", "enumeration"),
        ],
        objects={"pod/p": {"kind": "Pod"}, "pod/q": NASTY, "other": [NASTY]},
    )


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [(name, value) for name, value in attrs if name in ("src", "href", "srcset", "data", "action", "poster")]


def test_page_is_self_contained_and_well_formed(mixed):
    html = report.render(mixed)
    page = Page()
    page.feed(html)
    assert page.links
    assert all(name == "href" and value.startswith("#") for name, value in page.links)
    for tag in ("link", "img", "iframe", "object", "embed", "base"):
        assert tag not in page.tags
    assert "@import" not in html
    assert "url(" not in html
    assert not re.search(r"""https?://(?!www\.w3\.org/(1999/xhtml|2000/svg)")""", html)
    assert page.tags.count("script") == 1
    ElementTree.fromstring(html.split("\n", 1)[1])
    html.encode("utf-8")


def test_page_shows_what_failed_with_reason_next_step_and_evidence(mixed):
    html = report.render(mixed)
    assert "Not proven" in html
    assert html.index("Failed checks (1)") < html.index("All checks")
    assert "next step" in html
    assert "alert(1)</script>" not in html
    root = ElementTree.fromstring(html.split("\n", 1)[1])
    ids = [item.get("id") for item in root.iter(f"{XHTML}details")]
    targets = [item.get("href")[1:] for item in root.iter(f"{XHTML}a")]
    assert len(ids) == 3
    assert set(targets) <= set(ids)


def test_page_of_a_pass_and_of_nothing():
    assert "Every GPU is proven" in report.render(evidence([check()]))
    empty = evidence([], nodes=[], verdict="fail", reasons=["no check was made: nothing was verified"])
    html = report.render(empty)
    assert "Not proven" in html
    assert "No check was made" in html
    assert "nothing was verified" in html
    ElementTree.fromstring(html.split("\n", 1)[1])


def test_every_check_has_a_row_that_can_be_filtered(mixed):
    root = ElementTree.fromstring(report.render(mixed).split("\n", 1)[1])
    rows = [row for row in root.iter(f"{XHTML}tr") if row.get("data-status")]
    assert [row.get("data-status") for row in rows] == ["fail", "skip", "pass", "pass"]
    assert {row.get("data-phase") for row in rows} == {"assignment", "labels", "enumeration"}


@pytest.mark.parametrize(
    ("item", "failed", "states"),
    [
        (resource(), 0, ["opened"] * 4),
        (resource(opened=3, busy=1), 0, ["busy", "opened", "opened", "opened"]),
        (resource(opened=3), 0, ["closed", "opened", "opened", "opened"]),
        (resource(), 1, ["failed", "opened", "opened", "opened"]),
        (resource(capacity=5), 0, ["extra", "opened", "opened", "opened", "opened"]),
        (resource(capacity=None, opened=0), 0, ["closed"] * 4),
        (resource(expected=16, capacity=16, allocatable=16), 0, ["opened"] * 4),
        (resource(0), 3, []),
    ],
)
def test_state_of_each_gpu(item, failed, states):
    assert report_picture.gpu_states(item, failed) == states


@pytest.mark.parametrize(
    ("change", "holds"),
    [({}, True), ({"capacity": 5}, False), ({"allocatable": 3}, False), ({"opened": 3}, False),
     ({"opened": 3, "busy": 1}, True), ({"capacity": None}, False),
     ({"expected": 16, "capacity": 16, "allocatable": 16}, True)],
)  # fmt: skip
def test_whether_the_equation_holds(change, holds):
    assert report_picture.holds(resource(**change)) is holds


@pytest.mark.parametrize("count", [1, 39, 41, 400, 401, 5000])
def test_picture_has_every_node_at_every_size(count):
    nodes = [{"name": f"n-{number}", "resources": [resource(8)]} for number in range(count)]
    picture = report_picture.render(evidence([check(status="fail", node="n-0", reason="x")], nodes=nodes))
    root = ElementTree.fromstring(f"<div>{picture}</div>")
    titles = [item.text for item in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == count
    assert all("8 opened in a pod" in title for title in titles)
    assert len(picture) < 3_000_000


def test_large_page_keeps_failures_and_says_what_it_left_out():
    checks = [check(node=f"n-{number}") for number in range(4000)] + [check(status="fail", node="bad", reason="why")]
    html = report.render(evidence(checks))
    assert html.count("data-status=") == 3001
    assert "1000 more passed checks are in evidence.json" in html
    assert html.index('data-status="fail"') < html.index('data-status="pass"')


def test_junit_has_a_suite_a_phase_and_a_case_a_check(mixed):
    root = ElementTree.fromstring(junit.render(mixed).encode())
    assert (root.get("tests"), root.get("failures"), root.get("skipped"), root.get("time")) == ("4", "1", "1", "12.300")
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["enumeration", "assignment", "labels"]
    assert suites["assignment"].get("failures") == "1"
    cases = [case for suite in root for case in suite]
    assert [case.get("name") for case in cases] == ["ENUM-COUNT", "ASG-OPEN", "ASG-OPEN", "LBL-TRUE"]
    assert cases[0].get("classname") == "nv-1.nvidia.com/gpu"
    assert cases[3].get("classname") == "cluster"
    assert cases[3].find("skipped").get("message") == "no labels in this run"
    failure = cases[2].find("failure")
    assert "next step: look at dmesg" in failure.text
    assert failure.get("message").startswith("a<b>&")


def test_junit_is_never_green_when_the_verdict_is_not():
    nothing = evidence([], verdict="fail", reasons=["no check was made: nothing was verified"])
    root = ElementTree.fromstring(junit.render(nothing).encode())
    assert (root.get("tests"), root.get("failures")) == ("1", "1")
    skipped = evidence([check(status="skip", reason="busy")], verdict="fail", reasons=["nothing proven"])
    assert ElementTree.fromstring(junit.render(skipped).encode()).get("failures") == "1"
    assert ElementTree.fromstring(junit.render(evidence([check()])).encode()).get("failures") == "0"


@settings(max_examples=60, deadline=None)
@given(st.text(), st.one_of(st.none(), st.text(), st.integers(), st.lists(st.text())), st.text(max_size=30))
def test_any_text_leaves_both_documents_well_formed(reason, observed, name):
    sample = evidence(
        [check(status="fail", reason=reason, observed=observed, device=name, node=name, evidence=[name])],
        nodes=[{"name": name, "resources": [resource(name=name)]}],
        objects={name: {"log": reason}},
    )
    before = copy.deepcopy(sample)
    ElementTree.fromstring(report.render(sample).split("\n", 1)[1])
    ElementTree.fromstring(junit.render(sample).encode())
    assert sample == before
