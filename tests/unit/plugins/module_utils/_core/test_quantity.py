# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quantities as the API writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpuops.k8s.plugins.module_utils._core import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), (4, 4), ("2k", 2000), ("1e3", 1000), ("1Ki", 1024), ("500m", "0.5"), (".5", "0.5"), ("-1", -1)],
)
def test_parse(text: str | int, value: str | int) -> None:
    assert quantity.parse(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "one", "1 2", "1KiB", "1e", "--1", "0x10", "١"])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="no Kubernetes quantity"):
        quantity.parse(text)


@pytest.mark.parametrize("text", ["500m", "0.5", "1m"])
def test_count_refuses_parts(text: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        quantity.count(text)


@given(st.integers(min_value=0, max_value=10**15))
def test_count_keeps_whole_numbers(number: int) -> None:
    assert quantity.count(str(number)) == number
    assert quantity.count(f"{number}k") == number * 1000
