# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The unary client against a real gRPC server."""

from __future__ import annotations

import socket
import string
import threading
import time
from concurrent import futures

import grpc
import pytest

from ansible_collections.gpuops.k8s.plugins.module_utils._node import grpc_unary, hpack

SERVICE = "/v1.PodResourcesLister/"


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, behaviour):
        self._behaviour = behaviour

    def service(self, details):
        name = details.method.rsplit("/", 1)[-1]
        if name not in self._behaviour:
            return None
        return grpc.unary_unary_rpc_method_handler(self._behaviour[name])


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(**behaviour):
        path = str(tmp_path / "kubelet.sock")
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[_Handler(behaviour)], options=options)
        server.add_insecure_port(f"unix:{path}")
        server.start()
        servers.append(server)
        return path

    yield start
    for server in servers:
        server.stop(0).wait()


def test_answer_and_request_travel(serve):
    path = serve(List=lambda request, context: b"got " + request)
    assert grpc_unary.call(path, SERVICE + "List", b"\x01\x02") == b"got \x01\x02"


@pytest.mark.parametrize("size", [0, 1, 16383, 16384, 16385, 65535, 65536, 3_000_000, 20_000_000])
def test_answers_of_any_size(serve, size):
    path = serve(List=lambda request, context: b"x" * size)
    assert grpc_unary.call(path, SERVICE + "List", timeout=30) == b"x" * size


def test_answer_that_is_too_long(serve):
    path = serve(List=lambda request, context: b"x" * 5000)
    with pytest.raises(grpc_unary.GrpcError, match="longer than 1000 bytes"):
        grpc_unary.call(path, SERVICE + "List", max_bytes=1000)


def test_status_and_message_of_a_refusal(serve):
    characters = string.ascii_letters + string.digits + " %-./=_:&*,;!\"()?'+|#>$@[]~^}<`{"
    text = f"rejected by rate limit: {characters}\u00e4"

    def refuse(request, context):
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    with pytest.raises(grpc_unary.GrpcError) as caught:
        grpc_unary.call(serve(List=refuse), SERVICE + "List")
    assert caught.value.code == 8
    assert text in caught.value.message
    assert "ResourceExhausted" in caught.value.message


def test_method_that_the_server_does_not_know(serve):
    with pytest.raises(grpc_unary.GrpcError) as caught:
        grpc_unary.call(serve(), SERVICE + "List")
    assert caught.value.code == 12


def test_server_that_does_not_answer(serve):
    path = serve(List=lambda request, context: time.sleep(1.5) or b"late")
    began = time.monotonic()
    with pytest.raises(grpc_unary.GrpcError, match=r"no answer within 0\.3 s"):
        grpc_unary.call(path, SERVICE + "List", timeout=0.3)
    assert time.monotonic() - began < 1.2


def test_no_socket(tmp_path):
    with pytest.raises(grpc_unary.GrpcError, match="No such file") as caught:
        grpc_unary.call(str(tmp_path / "none.sock"), SERVICE + "List")
    assert "kubelet" in caught.value.line()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 400, b"\x00" * 9 + b"\xff" * 40])
def test_server_that_speaks_something_else(tmp_path, answer):
    path = str(tmp_path / "other.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def answer_once():
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(answer)
        connection.close()

    thread = threading.Thread(target=answer_once)
    thread.start()
    with pytest.raises(grpc_unary.GrpcError):
        grpc_unary.call(path, SERVICE + "List", timeout=3)
    thread.join()
    listener.close()


def test_huffman_codes_of_the_specification():
    # Examples of RFC 7541, appendix C.4 and C.6.
    assert hpack.huffman_decode(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff")) == "www.example.com"
    assert hpack.huffman_decode(bytes.fromhex("a8eb10649cbf")) == "no-cache"
    assert hpack.huffman_decode(bytes.fromhex("25a849e95ba97d7f")) == "custom-key"
    assert hpack.huffman_decode(bytes.fromhex("25a849e95bb8e8b4bf")) == "custom-value"
    assert (
        hpack.huffman_decode(bytes.fromhex("d07abe941054d444a8200595040b8166e082a62d1bff")) == "Mon, 21 Oct 2013 20:13:21 GMT"
    )
    assert hpack.huffman_decode(bytes.fromhex("9d29ad171863c78f0b97c8e9ae82ae43d3")) == "https://www.example.com"


def test_header_table_is_kept_between_blocks():
    decoder = hpack.Decoder()
    first = decoder.decode(b"\x40\x0agrpc-extra\x03abc")
    assert first == [("grpc-extra", "abc")]
    assert decoder.decode(b"\xbe") == first
    decoder.decode(b"\x20")
    with pytest.raises(IndexError):
        decoder.decode(b"\xbe")
