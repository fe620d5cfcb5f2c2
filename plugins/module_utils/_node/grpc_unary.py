# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One unary gRPC call over a unix socket, with the standard library alone.

The kubelet's local APIs speak gRPC; nodes have no gRPC library. One request and one answer need
little of HTTP/2: the preface, one stream, and windows so large that they never fill.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Dict, Tuple
from urllib.parse import unquote

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._node import hpack

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_LARGEST_WINDOW = 2**31 - 1
_INITIAL_WINDOW = 65535
_LARGEST_FRAME = 2**24 - 1
STATUS_NAMES = {
    1: "Cancelled", 2: "Unknown", 3: "InvalidArgument", 4: "DeadlineExceeded", 5: "NotFound", 7: "PermissionDenied",
    8: "ResourceExhausted", 12: "Unimplemented", 13: "Internal", 14: "Unavailable", 16: "Unauthenticated",
}  # fmt: skip


class GrpcError(GpuOpsError):
    """A call that failed: C(code) is the gRPC status, -1 if no status came."""

    def __init__(self, message: str, hint: str = "", code: int = -1) -> None:
        super().__init__(message, hint)
        self.code = code


def call(socket_path: str, method: str, request: bytes = b"", timeout: float = 10, max_bytes: int = 64 * 2**20) -> bytes:
    """Call C(method), for example C(/v1.PodResourcesLister/List), and return the answer's bytes.

    C(timeout) is in seconds for the whole call. Raises GrpcError if the socket cannot be reached, the
    time is over, the answer is longer than C(max_bytes), or the server answers with a status other than 0.
    """
    connection = _Connection(socket_path, method, timeout, max_bytes)
    try:
        connection.open()
        connection.send_request(request)
        return connection.receive()
    except socket.timeout:
        raise connection.error(f"no answer within {timeout:g} s", "Is the kubelet busy or stopped?") from None
    except OSError as error:
        raise connection.error(error.strerror or str(error), "Is the kubelet running, and is this user root?") from None
    except (ValueError, IndexError, struct.error) as error:
        raise connection.error(f"the answer is no gRPC: {error}", "Which program holds this socket?") from None
    finally:
        connection.close()


class _Connection:
    def __init__(self, path: str, method: str, timeout: float, max_bytes: int) -> None:
        self._path, self._method, self._max_bytes = path, method, max_bytes
        self._deadline = time.monotonic() + timeout
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._decoder = hpack.Decoder()
        self._buffer = bytearray()
        self._headers: Dict[str, str] = {}
        self._body = bytearray()

    def error(self, what: str, hint: str = "", code: int = -1) -> GrpcError:
        return GrpcError(f"Calling {self._method} at {self._path}: {what}", hint, code)

    def open(self) -> None:
        self._limit_time()
        self._socket.connect(self._path)
        # No header table, windows at their largest, frames as large as they come.
        settings = struct.pack(">HIHIHI", 1, 0, 4, _LARGEST_WINDOW, 5, _LARGEST_FRAME)
        window = struct.pack(">I", _LARGEST_WINDOW - _INITIAL_WINDOW)
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW_UPDATE, 0, 0, window))

    def send_request(self, message: bytes) -> None:
        headers = hpack.encode([
            (":method", "POST"), (":scheme", "http"), (":path", self._method), (":authority", "localhost"),
            ("content-type", "application/grpc"), ("te", "trailers"),
        ])  # fmt: skip
        body = b"\x00" + struct.pack(">I", len(message)) + message
        self._socket.sendall(_frame(_HEADERS, _END_HEADERS, 1, headers) + _frame(_DATA, _END_STREAM, 1, body))

    def receive(self) -> bytes:
        block, ends = b"", False
        while True:
            kind, flags, stream, payload = self._next_frame()
            if stream == 0:
                self._connection_frame(kind, flags, payload)
            elif kind == _RST_STREAM:
                raise self.error(f"the server broke off the call (HTTP/2 error {struct.unpack('>I', payload[:4])[0]})")
            elif kind == _DATA:
                self._add_data(_unpad(payload, flags))
                if flags & _END_STREAM:
                    return self._message()
            elif kind in (_HEADERS, _CONTINUATION):
                block += _header_block(payload, flags) if kind == _HEADERS else payload
                ends = bool(flags & _END_STREAM) if kind == _HEADERS else ends
                if flags & _END_HEADERS:
                    self._headers.update(self._decoder.decode(block))
                    block = b""
                    if ends:
                        return self._message()

    def _connection_frame(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._socket.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY:
            code = struct.unpack(">I", payload[4:8])[0]
            if code:
                raise self.error(f"the server ended the connection (HTTP/2 error {code})")

    def _add_data(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > self._max_bytes + 5:
            raise self.error(f"the answer is longer than {self._max_bytes} bytes")

    def _message(self) -> bytes:
        status = self._headers.get("grpc-status", "")
        if status not in ("", "0"):
            code = int(status) if status.isdigit() else 2
            name = STATUS_NAMES.get(code, f"status {code}")
            raise self.error(f"{name}: {unquote(self._headers.get('grpc-message', ''))}", code=code)
        if len(self._body) < 5:
            raise self.error("the answer is empty")
        if self._body[0]:
            raise self.error("the answer is compressed, which was not asked for")
        length = struct.unpack(">I", bytes(self._body[1:5]))[0]
        if len(self._body) < 5 + length:
            raise self.error(f"the answer is cut off after {len(self._body) - 5} of {length} bytes")
        return bytes(self._body[5 : 5 + length])

    def _next_frame(self) -> Tuple[int, int, int, bytes]:
        head = self._exactly(9)
        length = int.from_bytes(head[:3], "big")
        stream = int.from_bytes(head[5:9], "big") & 0x7FFFFFFF
        return head[3], head[4], stream, self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._limit_time()
            data = self._socket.recv(262144)
            if not data:
                raise self.error("the server closed the connection before the answer was complete", "Try again.")
            self._buffer += data
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _limit_time(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout()
        self._socket.settimeout(left)

    def close(self) -> None:
        self._socket.close()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _unpad(payload: bytes, flags: int) -> bytes:
    if not flags & _PADDED:
        return payload
    return payload[1 : len(payload) - payload[0]]


def _header_block(payload: bytes, flags: int) -> bytes:
    block = _unpad(payload, flags)
    return block[5:] if flags & _PRIORITY else block
