# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One resource's gRPC service on its socket."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc

from gpuops_lab.plugin import faults
from gpuops_lab.plugin.api import deviceplugin_pb2 as api
from gpuops_lab.plugin.api import deviceplugin_pb2_grpc as rpc
from gpuops_lab.plugin.faults import Fault
from gpuops_lab.plugin.model import AllocationError, Device, Plugin, Resource

VERSION = "v1beta1"
OPTIONS = api.DevicePluginOptions(get_preferred_allocation_available=True)
_log = logging.getLogger("plugin")


def to_message(device: Device) -> api.Device:
    """The wire form of a device."""
    message = api.Device(ID=device.id, health="Healthy" if device.healthy else "Unhealthy")
    if device.numa is not None:
        message.topology.CopyFrom(api.TopologyInfo(nodes=[api.NUMANode(ID=node) for node in device.numa]))
    return message


class ResourceService(rpc.DevicePluginServicer):
    """Answers a kubelet for one resource, under the faults of the moment."""

    def __init__(self, plugin: Plugin, resource: Resource, on_stream_end: Callable[[], None]) -> None:
        self._plugin = plugin
        self._true = resource
        self._faults: list[Fault] = []
        self._view = resource
        self._changed = threading.Condition()
        self._stopping = False
        self._on_stream_end = on_stream_end
        self.has_listed = False

    @property
    def active(self) -> list[Fault]:
        """The faults of the moment."""
        return self._faults

    @property
    def resource(self) -> Resource:
        """The resource as it is offered now."""
        return self._view

    def update(self, resource: Resource, active: list[Fault]) -> None:
        """Take new hardware or faults; streams send a new list only if it differs."""
        with self._changed:
            self._true, self._faults = resource, active
            view = faults.view(resource, active)
            self._view = view
            self._changed.notify_all()

    def stop(self) -> None:
        """End all streams."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def GetDevicePluginOptions(self, request: api.Empty, context: grpc.ServicerContext) -> api.DevicePluginOptions:  # noqa: N802
        """Say which optional calls the plugin wants."""
        return OPTIONS

    def ListAndWatch(  # noqa: N802
        self, request: api.Empty, context: grpc.ServicerContext
    ) -> Iterator[api.ListAndWatchResponse]:
        """Send the whole list at once and after every change, until the kubelet leaves or the plugin stops."""
        ended = threading.Event()

        def end() -> None:
            ended.set()
            with self._changed:
                self._changed.notify_all()
            if not self._stopping:
                self._on_stream_end()

        context.add_callback(end)
        last: list[api.Device] | None = None
        while not self._stopping and not ended.is_set():
            with self._changed:
                devices = None if faults.find(self._faults, "hang") else [to_message(d) for d in self._view.devices]
                if devices is None or devices == last:
                    self._changed.wait(1.0)
                    continue
            _log.info("%s: listing %d devices", self._true.name, len(devices))
            last = devices
            self.has_listed = True
            yield api.ListAndWatchResponse(devices=devices)

    def GetPreferredAllocation(  # noqa: N802
        self, request: api.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> api.PreferredAllocationResponse:
        """Choose for each container as the vendor's plugin does."""
        answer = api.PreferredAllocationResponse()
        for part in request.container_requests:
            available, required = list(part.available_deviceIDs), list(part.must_include_deviceIDs)
            try:
                chosen = self._plugin.prefer(self._view, available, required, part.allocation_size)
            except AllocationError as refusal:
                context.abort(grpc.StatusCode.UNKNOWN, str(refusal))
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    def Allocate(self, request: api.AllocateRequest, context: grpc.ServicerContext) -> api.AllocateResponse:  # noqa: N802
        """Answer each container, or refuse as the vendor's plugin does."""
        slow = faults.find(self._faults, "allocate-slow")
        if slow:
            time.sleep(slow.seconds or 10.0)
        error = faults.find(self._faults, "allocate-error")
        if error:
            context.abort(grpc.StatusCode.UNKNOWN, error.message or "simulated fault: allocation failed")
        answer = api.AllocateResponse()
        for part in request.container_requests:
            ids = list(part.devices_ids)
            _log.info("%s: Allocate %s", self._true.name, ",".join(ids))
            try:
                answer.container_responses.append(self._plugin.allocate(self._view, ids))
            except AllocationError as refusal:
                _log.warning("%s: refused: %s", self._true.name, refusal)
                context.abort(grpc.StatusCode.UNKNOWN, str(refusal))
        return answer

    def PreStartContainer(  # noqa: N802
        self, request: api.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> api.PreStartContainerResponse:
        """Nothing to do before a start."""
        return api.PreStartContainerResponse()


class Endpoint:
    """A service that listens on a socket and can register it."""

    def __init__(self, service: ResourceService, folder: str, name: str) -> None:
        self.service = service
        self.name = name
        self._folder = folder
        self._server: grpc.Server | None = None

    @property
    def path(self) -> str:
        """The socket's path."""
        return os.path.join(self._folder, self.name)

    def serve(self) -> None:
        """Listen; a socket of the same name is replaced.

        Raises:
            OSError: The socket cannot be made.
        """
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), options=(("grpc.so_reuseport", 0),))
        rpc.add_DevicePluginServicer_to_server(self.service, server)
        try:
            bound = server.add_insecure_port(f"unix://{self.path}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self.path}: {error}") from error
        if not bound:
            raise OSError(f"cannot listen on {self.path}")
        server.start()
        self._server = server

    def is_there(self) -> bool:
        """Whether the socket file is in its folder."""
        return os.path.exists(self.path)

    def stop(self) -> None:
        """End streams and stop listening; the file goes with it."""
        self.service.stop()
        if self._server is not None:
            self._server.stop(0.2).wait(2.0)
            self._server = None

    def register(self, resource_name: str) -> None:
        """Register with the kubelet.

        Raises:
            OSError: The kubelet refuses or cannot be reached, with its reason.
        """
        request = api.RegisterRequest(version=VERSION, endpoint=self.name, resource_name=resource_name, options=OPTIONS)
        with grpc.insecure_channel(f"unix://{self._folder}/kubelet.sock") as channel:
            try:
                rpc.RegistrationStub(channel).Register(request, timeout=10)
            except grpc.RpcError as error:
                raise OSError(f"registering {resource_name} failed: {error.details()}") from error


def is_served(path: str) -> bool:
    """Whether somebody listens on a socket."""
    import socket

    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(path)
        except OSError:
            return False
    return True
