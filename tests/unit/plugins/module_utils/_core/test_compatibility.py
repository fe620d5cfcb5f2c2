# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions that go together, and those that do not."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpuops.k8s.plugins.module_utils._core import compatibility
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS

NUMBERS = st.lists(st.integers(min_value=0, max_value=99), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ("<1.17.8", "1.17.7-1", True),
        ("<1.17.8", "1.17.8-1", False),
        ("<1.17.8", "1.9", True),  # not by the letters
        (">=1.18.0,<1.18.1", "1.18", True),
        (">=1.18.0,<1.18.1", "1.18.1-1", False),
        ("<1.7", "v2.4.2", False),
        (">=1.35", "v1.36.3+k3s1", True),
        ("==580", "580.0.0", True),
        (">580", "580", False),
        ("<=580", "580", True),
        ("volta|turing", "Turing", True),
        ("volta|turing", "ampere", False),
        ("<2", "", False),
        ("<2", "unknown", False),
    ],
)
def test_a_value_is_in_a_range_or_not(condition: str, value: str, expected: bool) -> None:
    assert compatibility.holds(condition, value) is expected


def test_a_range_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="'>>1' is not an operator"):
        compatibility.holds(">>1", "1")


@given(NUMBERS, NUMBERS)
def test_exactly_one_of_less_equal_greater(left: str, right: str) -> None:
    assert [compatibility.holds(operator + right, left) for operator in ("<", "==", ">")].count(True) == 1


def test_every_rule_of_every_vendor_can_hold_and_can_be_read() -> None:
    rules = [(vendor.name, rule) for vendor in VENDORS.values() for rule in vendor.incompatibilities]
    assert len(rules) >= 10
    known = {
        "architecture", "driver", "module", "flavor", "partitions", "out_of_tree", "kernel", "kubernetes", "containerd",
        "plugin", "toolkit",
    }  # fmt: skip
    for vendor, rule in rules:
        assert set(rule.when) <= known, (vendor, rule.code)
        facts = {name: _inside(condition) for name, condition in rule.when.items()}
        (found,) = compatibility.problems([asdict(rule)], dict.fromkeys(known, "") | facts, "node-1")
        assert found["code"] == rule.code
        assert found["hint"]
        assert rule.source in found["message"]
        assert "{" not in found["message"]
        for name in facts:
            assert not compatibility.problems([asdict(rule)], {**facts, name: ""}, "node-1"), "an unknown fact was judged"


def _inside(condition: str) -> str:
    """A value for which the condition holds: a bound of the range, or a little below it; the first of the words."""
    if condition[0] not in "<>=":
        return condition.split("|")[0]
    bounds = [part.lstrip("<>=") for part in condition.split(",")]
    tried = [*bounds, *(f"{int(bound.split('.')[0]) - 1}.99" for bound in bounds), "0.1"]
    return next(value for value in tried if compatibility.holds(condition, value))
