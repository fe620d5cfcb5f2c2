# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading protobuf messages without a library: fields by number, nested messages as bytes."""

from __future__ import annotations

from typing import Dict, List, Tuple, Union

Value = Union[int, bytes]


def fields(data: bytes) -> Dict[int, List[Value]]:
    """Field number to its values in order; varints as integers, the rest as bytes.

    Raises ValueError if the message is broken.
    """
    found: Dict[int, List[Value]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        value: Value
        if wire_type == 0:
            value, at = _varint(data, at)
        elif wire_type == 2:
            length, at = _varint(data, at)
            value, at = _cut(data, at, length)
        elif wire_type in (1, 5):
            value, at = _cut(data, at, 8 if wire_type == 1 else 4)
        else:
            raise ValueError(f"wire type {wire_type} at byte {at}")
        found.setdefault(number, []).append(value)
    return found


def messages(found: Dict[int, List[Value]], number: int) -> List[bytes]:
    """The nested messages of a field."""
    return [value for value in found.get(number, []) if isinstance(value, bytes)]


def strings(found: Dict[int, List[Value]], number: int) -> List[str]:
    """The strings of a field."""
    return [value.decode("utf-8", "replace") for value in messages(found, number)]


def string(found: Dict[int, List[Value]], number: int) -> str:
    """The last string of a field, "" if there is none."""
    values = strings(found, number)
    return values[-1] if values else ""


def _cut(data: bytes, at: int, length: int) -> Tuple[bytes, int]:
    if at + length > len(data):
        raise ValueError("message is cut off")
    return data[at : at + length], at + length


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
