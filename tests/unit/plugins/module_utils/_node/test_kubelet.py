# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's books: from the API, from the checkpoint, and when neither can be read."""

from __future__ import annotations

import json
import socket
from concurrent import futures

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpuops.k8s.plugins.module_utils._node import kubelet, protobuf

CHECKPOINT = {
    "Data": {
        "PodDeviceEntries": [
            {
                "PodUID": "uid-1", "ContainerName": "main", "ResourceName": "amd.com/gpu",
                "DeviceIDs": {"0": ["b", "a"], "1": ["a"]}, "AllocResp": "",
            }
        ],
        "RegisteredDevices": {"nvidia.com/gpu": ["GPU-2", "GPU-1"], "amd.com/gpu": ["a", "b"]},
    },
    "Checksum": 1,
}  # fmt: skip


def field(number, *values):
    data = b""
    for value in values:
        raw = value.encode() if isinstance(value, str) else value
        length = len(raw)
        data += bytes([number << 3 | 2])
        while True:
            data += bytes([length & 0x7F | (0x80 if length > 0x7F else 0)])
            length >>= 7
            if not length:
                break
        data += raw
    return data


def device(resource, *ids):
    return field(1, resource) + field(2, *ids) + field(3, field(1, b"\x08\x01"))


def pod(name, namespace, *containers):
    return field(1, name) + field(2, namespace) + field(3, *containers)


LIST = field(
    1,
    pod(
        "p-1",
        "team",
        field(1, "main") + field(2, device("amd.com/gpu", "b"), device("amd.com/gpu", "a"), device("amd.com/gpu", "a")),
    ),
    pod("p-2", "team", field(1, "idle")),
)
ALLOCATABLE = field(1, device("amd.com/gpu", "a"), device("amd.com/gpu", "b"), device("nvidia.com/gpu", "GPU-1", "GPU-2"))


class Folder:
    def __init__(self, path):
        self.path, self.plugins = path, path / "device-plugins"
        self.plugins.mkdir(parents=True)
        (path / "pod-resources").mkdir()
        self.sockets, self.servers = [], []

    def socket(self, name):
        found = socket.socket(socket.AF_UNIX)
        found.bind(str(self.plugins / name))
        self.sockets.append(found)

    def checkpoint(self, content=CHECKPOINT):
        (self.plugins / "kubelet_internal_checkpoint").write_text(content if isinstance(content, str) else json.dumps(content))

    def serve(self, **answers):
        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                name = details.method.rsplit("/", 1)[-1]
                answer = answers[name]
                return grpc.unary_unary_rpc_method_handler(answer if callable(answer) else lambda request, context: answer)

        server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Handler()])
        server.add_insecure_port(f"unix:{self.path}/pod-resources/kubelet.sock")
        server.start()
        self.servers.append(server)

    def collect(self, **more):
        return kubelet.collect(str(self.path), **more)


@pytest.fixture
def folder(tmp_path):
    found = Folder(tmp_path / "k")
    yield found
    for item in found.sockets:
        item.close()
    for server in found.servers:
        server.stop(0).wait()


def codes(ledger):
    return [problem["code"] for problem in ledger["problems"]]


def test_api_and_checkpoint_together(folder):
    folder.socket("kubelet.sock")
    folder.socket("amd.com_gpu")
    folder.socket("nvidia-gpu.sock")
    folder.checkpoint()
    folder.serve(List=LIST, GetAllocatableResources=ALLOCATABLE)
    assert folder.collect() == {
        "source": "podresources",
        "sockets": ["amd.com_gpu", "nvidia-gpu.sock"],
        "kubelet_socket": True,
        "registered": {"amd.com/gpu": ["a", "b"], "nvidia.com/gpu": ["GPU-1", "GPU-2"]},
        "allocations": [
            {
                "pod_uid": "",
                "pod": "p-1",
                "namespace": "team",
                "container": "main",
                "resource": "amd.com/gpu",
                "device_ids": ["a", "b"],
            }
        ],
        "problems": [],
    }


def test_checkpoint_alone(folder):
    folder.checkpoint()
    ledger = folder.collect()
    assert ledger["source"] == "checkpoint"
    assert ledger["allocations"] == [
        {
            "pod_uid": "uid-1",
            "pod": "",
            "namespace": "",
            "container": "main",
            "resource": "amd.com/gpu",
            "device_ids": ["a", "b"],
        }
    ]
    assert codes(ledger) == ["podresources_absent"]
    assert not ledger["kubelet_socket"]


def test_api_alone(folder):
    folder.serve(List=LIST, GetAllocatableResources=ALLOCATABLE)
    ledger = folder.collect()
    assert ledger["source"] == "podresources"
    assert ledger["registered"]["nvidia.com/gpu"] == ["GPU-1", "GPU-2"]
    assert codes(ledger) == ["checkpoint_unreadable"]


def test_nothing_at_all(tmp_path):
    ledger = kubelet.collect(str(tmp_path))
    assert (ledger["source"], ledger["registered"], ledger["allocations"]) == ("none", {}, [])
    assert codes(ledger) == ["folder_unreadable", "checkpoint_unreadable", "podresources_absent"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"Data": 3}', '{"Data": {"PodDeviceEntries": [{}]}}'])
def test_broken_checkpoint(folder, content):
    folder.checkpoint(content)
    ledger = folder.collect()
    assert ledger["source"] == "none"
    assert codes(ledger)[0] == "checkpoint_broken"


def test_empty_checkpoint(folder):
    folder.checkpoint({"Data": {"PodDeviceEntries": None, "RegisteredDevices": {}}, "Checksum": 1})
    assert folder.collect()["source"] == "checkpoint"


def test_books_that_differ_from_the_running_kubelet(folder):
    folder.checkpoint()
    folder.serve(List=LIST, GetAllocatableResources=field(1, device("amd.com/gpu", "a", "b")))
    ledger = folder.collect()
    assert codes(ledger) == ["ledger_differs"]
    assert "nvidia.com/gpu" in ledger["problems"][0]["message"]


def test_rate_limit_is_waited_out(folder, monkeypatch):
    monkeypatch.setattr(kubelet.time, "sleep", lambda seconds: None)
    calls = []

    def sometimes(request, context):
        calls.append(1)
        if len(calls) < 3:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return LIST

    folder.serve(List=sometimes, GetAllocatableResources=ALLOCATABLE)
    assert folder.collect()["source"] == "podresources"
    assert len(calls) == 3


def test_api_that_refuses_or_babbles(folder, monkeypatch):
    monkeypatch.setattr(kubelet.time, "sleep", lambda seconds: None)
    folder.checkpoint()
    folder.serve(List=b"\xff\xff\xff", GetAllocatableResources=ALLOCATABLE)
    ledger = folder.collect()
    assert (ledger["source"], codes(ledger)) == ("checkpoint", ["podresources_failed"])


def test_only_wanted_resources(folder):
    folder.checkpoint()
    ledger = folder.collect(resources=["nvidia.com/gpu"])
    assert list(ledger["registered"]) == ["nvidia.com/gpu"]
    assert ledger["allocations"] == []


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    try:
        kubelet.parse_pod_resources(data)
        kubelet.parse_allocatable(data)
        protobuf.fields(data)
    except ValueError:
        pass
