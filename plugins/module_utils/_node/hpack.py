# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Header compression of HTTP/2 (RFC 7541), as far as a gRPC client needs it: plain sending, full reading."""

from __future__ import annotations

from typing import Dict, Iterable, List, Tuple

Header = Tuple[str, str]
_STATIC_NAMES = 61  # no gRPC status is among them, so their names are not needed
_ENTRY_OVERHEAD = 32

# Code lengths of the printable characters; the codes follow, because within a length they are
# given out in the order of the characters. Longer codes are of characters that never occur here.
_LENGTHS = {
    5: "012aceiost",
    6: " %-./3456789=A_bdfghlmnpru",
    7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: "&*,;XZ",
    10: '!"()?',
    11: "'+|",
    12: "#>",
    13: "\x00$@[]~",
    14: "^}",
    15: "<`{",
}


def _codes() -> Dict[Tuple[int, int], str]:
    table: Dict[Tuple[int, int], str] = {}
    code, previous = 0, 5
    for length, characters in _LENGTHS.items():
        code <<= length - previous
        previous = length
        for character in characters:
            table[(length, code)] = character
            code += 1
    return table


_CODES = _codes()


def huffman_decode(data: bytes) -> str:
    """The text of Huffman-coded bytes; a character outside of the printable ones ends it."""
    text: List[str] = []
    code = length = 0
    for byte in data:
        for shift in range(7, -1, -1):
            code, length = code << 1 | byte >> shift & 1, length + 1
            character = _CODES.get((length, code))
            if character is not None:
                text.append(character)
                code = length = 0
            elif length > 15:
                return "".join(text)
    return "".join(text)


def encode(headers: Iterable[Header]) -> bytes:
    """Headers as literals that nobody needs to remember; names and values of at most 126 bytes."""
    block = b""
    for name, value in headers:
        block += b"\x00" + _plain(name) + _plain(value)
    return block


def _plain(text: str) -> bytes:
    data = text.encode("ascii")
    if len(data) > 126:
        raise ValueError(f"header part of {len(data)} bytes")
    return bytes([len(data)]) + data


class Decoder:
    """Reads header blocks of one connection, with the table that they build up."""

    def __init__(self) -> None:
        self._table: List[Header] = []
        self._limit = 4096

    def decode(self, block: bytes) -> List[Header]:
        """The headers of a block. Raises ValueError or IndexError if it is broken."""
        headers: List[Header] = []
        at = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 7)
                headers.append(self._entry(index))
            elif first & 0xE0 == 0x20:
                self._limit, at = _integer(block, at, 5)
                self._evict()
            else:
                indexed = bool(first & 0x40)
                header, at = self._literal(block, at, 6 if indexed else 4)
                headers.append(header)
                if indexed:
                    self._table.insert(0, header)
                    self._evict()
        return headers

    def _literal(self, block: bytes, at: int, bits: int) -> Tuple[Header, int]:
        index, at = _integer(block, at, bits)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _string(block, at)
        value, at = _string(block, at)
        return (name, value), at

    def _entry(self, index: int) -> Header:
        if index <= _STATIC_NAMES:
            return f"static-{index}", ""
        return self._table[index - _STATIC_NAMES - 1]

    def _evict(self) -> None:
        while self._table and sum(len(name) + len(value) + _ENTRY_OVERHEAD for name, value in self._table) > self._limit:
            self._table.pop()


def _integer(block: bytes, at: int, bits: int) -> Tuple[int, int]:
    mask = (1 << bits) - 1
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _string(block: bytes, at: int) -> Tuple[str, int]:
    coded = bool(block[at] & 0x80)
    length, at = _integer(block, at, 7)
    data = block[at : at + length]
    if len(data) < length:
        raise ValueError("header string is cut off")
    return (huffman_decode(data) if coded else data.decode("latin-1")), at + length
