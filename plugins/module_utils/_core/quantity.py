# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes quantities: C(4), C("4"), C("500m"), C("1Gi"), C("2k"), C("1e3")."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Union

_DECIMAL = {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "m": -3, "u": -6, "n": -9, "": 0}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SUFFIXES = {
    **{suffix: Decimal(10) ** power for suffix, power in _DECIMAL.items()},
    **{suffix: Decimal(2) ** power for suffix, power in _BINARY.items()},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)


def parse(quantity: Union[str, int, float]) -> Decimal:
    """The exact value of a quantity as the API writes it.

    Raises:
        ValueError: It is no quantity.
    """
    found = _QUANTITY.fullmatch(str(quantity).strip())
    if found is None:
        raise ValueError(f"{quantity!r} is no Kubernetes quantity (like 4, 500m or 1Gi)")
    number, exponent, suffix = found.groups()
    return Decimal(number + (exponent or "")) * _SUFFIXES[suffix or ""]


def count(quantity: Union[str, int, float]) -> int:
    """The value of a quantity of devices, which must be a whole number.

    Raises:
        ValueError: It is no quantity, or not whole.
    """
    value = parse(quantity)
    if value != value.to_integral_value():
        raise ValueError(f"{quantity!r} is not a whole number of devices")
    return int(value)
