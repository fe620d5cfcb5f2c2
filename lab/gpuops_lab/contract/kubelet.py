# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the kubelet's device manager: takes registrations and asks plugins what a kubelet would ask."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from gpuops_lab.plugin.api import deviceplugin_pb2 as api
from gpuops_lab.plugin.api import deviceplugin_pb2_grpc as rpc

SOCKET = "kubelet.sock"
UNKNOWN_ID = "nosuch"
CALL_SECONDS = 10.0
Form = dict[str, Any]


class StandInKubelet(rpc.RegistrationServicer):
    """Serves Registration in a folder and keeps what registered, newest last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[api.RegisterRequest] = []
        self._changed = threading.Condition()
        self._server: grpc.Server | None = None
        self._channels: list[grpc.Channel] = []

    def __enter__(self) -> StandInKubelet:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to serve; like a kubelet, remove the sockets of earlier plugins first."""
        for path in self.folder.iterdir():
            if path.is_socket():
                path.unlink()
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        rpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix://{self.folder / SOCKET}")
        self._server.start()

    def stop(self) -> None:
        """Stop serving and close every stream."""
        for channel in self._channels:
            channel.close()
        self._channels.clear()
        if self._server is not None:
            self._server.stop(0).wait(2)
            self._server = None

    def Register(self, request: api.RegisterRequest, context: grpc.ServicerContext) -> api.Empty:  # noqa: N802
        """Accept a plugin after asking it for its options, as a kubelet does before it answers."""
        if request.version != "v1beta1":
            context.abort(grpc.StatusCode.UNKNOWN, f"requested API version {request.version!r} is not supported by kubelet")
        try:
            with grpc.insecure_channel(f"unix://{self.folder / request.endpoint}") as channel:
                rpc.DevicePluginStub(channel).GetDevicePluginOptions(api.Empty(), timeout=CALL_SECONDS)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {error.details()}")
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        return api.Empty()

    def wait_for(self, count: int, seconds: float) -> bool:
        """Wait until so many registrations came; whether they did."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.requests) >= count, seconds)

    def settle(self, seconds: float, give_up: float, ended: Callable[[], bool]) -> list[api.RegisterRequest]:
        """Wait for a first registration, then until none came for a while; the newest of each resource."""
        deadline = time.monotonic() + give_up
        while not self.wait_for(1, 0.1):
            if ended() or time.monotonic() > deadline:
                return []
        known = 0
        while known != len(self.requests):
            known = len(self.requests)
            time.sleep(seconds)
        newest = {request.resource_name: request for request in self.requests}
        return [newest[name] for name in sorted(newest)]

    def stub(self, endpoint: str) -> rpc.DevicePluginStub:
        """A client of a plugin's socket."""
        channel = grpc.insecure_channel(f"unix://{self.folder / endpoint}")
        self._channels.append(channel)
        return rpc.DevicePluginStub(channel)  # type: ignore[no-untyped-call]

    def sockets(self) -> list[str]:
        """Names of the sockets in the folder, its own too."""
        return sorted(name for name in os.listdir(self.folder) if (self.folder / name).is_socket())


class Listing:
    """A stream of device lists, kept open as a kubelet keeps it."""

    def __init__(self, stub: rpc.DevicePluginStub) -> None:
        self.lists: list[list[api.Device]] = []
        self.ended = threading.Event()
        self._changed = threading.Condition()
        self._stream = stub.ListAndWatch(api.Empty())
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        try:
            for answer in self._stream:
                with self._changed:
                    self.lists.append(list(answer.devices))
                    self._changed.notify_all()
        except grpc.RpcError:
            pass
        self.ended.set()

    def wait(self, wanted: Callable[[list[api.Device]], bool], seconds: float = CALL_SECONDS) -> list[api.Device] | None:
        """Wait for a list of which something holds; None if none came in time."""
        with self._changed:
            found = self._changed.wait_for(lambda: bool(self.lists) and wanted(self.lists[-1]), seconds)
            return self.lists[-1] if found else None

    def close(self) -> None:
        """Break the stream, as a kubelet that ends does."""
        self._stream.cancel()


def record(kubelet: StandInKubelet, request: api.RegisterRequest) -> Form:
    """Ask one registered plugin everything, in the form of the recorded cases; a call that fails is its status and text."""
    stub = kubelet.stub(request.endpoint)
    listing = Listing(stub)
    devices = listing.wait(lambda _: True)
    form: Form = {
        "register": {
            "version": request.version,
            "endpoint": request.endpoint,
            "resource_name": request.resource_name,
            "options": options_form(request.options),
        },
        "options": _called(lambda: options_form(stub.GetDevicePluginOptions(api.Empty(), timeout=CALL_SECONDS))),
        "devices": None if devices is None else sorted((device_form(d) for d in devices), key=lambda form: str(form["ID"])),
    }
    ids = [str(device["ID"]) for device in form["devices"] or ()]
    preferred = _called(lambda: preferred_form(stub.GetPreferredAllocation(_preference(ids), timeout=CALL_SECONDS)))
    form["allocate_1"] = _called(lambda: allocated_form(_allocate(stub, ids[:1]))) if ids else None
    pair = _pair(preferred, ids)
    form["allocate_2"] = _called(lambda: allocated_form(_allocate(stub, pair))) if len(ids) > 1 else None
    form["allocate_bad"] = _called(lambda: allocated_form(_allocate(stub, [UNKNOWN_ID])))
    form["preferred_2"] = preferred if len(ids) > 1 else None
    listing.close()
    return form


def _pair(preferred: Form | str, ids: list[str]) -> list[str]:
    """Two ids to allocate: those that the plugin prefers, as a kubelet does, else the first two."""
    chosen = preferred["container_responses"][0]["deviceIDs"] if isinstance(preferred, dict) else []
    return chosen if len(chosen) == 2 else ids[:2]


def _preference(ids: list[str]) -> api.PreferredAllocationRequest:
    part = api.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=min(2, len(ids)))
    return api.PreferredAllocationRequest(container_requests=[part])


def _allocate(stub: rpc.DevicePluginStub, ids: list[str]) -> api.AllocateResponse:
    part = api.ContainerAllocateRequest(devices_ids=ids)
    answer: api.AllocateResponse = stub.Allocate(api.AllocateRequest(container_requests=[part]), timeout=CALL_SECONDS)
    return answer


def _called(call: Callable[[], Form]) -> Form | str:
    try:
        return call()
    except grpc.RpcError as error:
        return f"{error.code()} {error.details()}"


def options_form(options: api.DevicePluginOptions) -> dict[str, bool]:
    """Options that are on."""
    names = ("pre_start_required", "get_preferred_allocation_available")
    return {name: True for name in names if getattr(options, name)}


def device_form(device: api.Device) -> dict[str, Any]:
    """Id, health and, where the plugin says one, NUMA nodes."""
    form: dict[str, Any] = {"ID": device.ID, "health": device.health}
    if device.HasField("topology"):
        form["numa"] = [node.ID for node in device.topology.nodes]
    return form


def preferred_form(answer: api.PreferredAllocationResponse) -> Form:
    """Chosen ids for each container."""
    return {"container_responses": [{"deviceIDs": list(part.deviceIDs)} for part in answer.container_responses]}


def allocated_form(answer: api.AllocateResponse) -> Form:
    """What each container gets; empty parts are left out."""
    return {"container_responses": [_container_form(part) for part in answer.container_responses]}


def _container_form(part: api.ContainerAllocateResponse) -> Form:
    form: Form = {
        "envs": dict(part.envs),
        "mounts": [
            {"container_path": m.container_path, "host_path": m.host_path, "read_only": m.read_only} for m in part.mounts
        ],
        "devices": [
            {"container_path": d.container_path, "host_path": d.host_path, "permissions": d.permissions} for d in part.devices
        ],
        "annotations": dict(part.annotations),
        "cdi_devices": [{"name": device.name} for device in part.cdi_devices],
    }
    return {key: value for key, value in form.items() if value}
