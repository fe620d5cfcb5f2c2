# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugin's life: discover, serve, register, watch the kubelet and the faults, end as the vendor's plugin ends."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

from gpuops_lab.plugin import faults
from gpuops_lab.plugin.model import Places, Plugin, PluginExit, Resource
from gpuops_lab.plugin.service import Endpoint, ResourceService, is_served

POLL_SECONDS = 0.2
RETRY_SECONDS = 1.0
_log = logging.getLogger("plugin")


class Life:
    """One run of a plugin, from start to exit status."""

    def __init__(self, plugin: Plugin, places: Places) -> None:
        self._plugin = plugin
        self._places = places
        self._endpoints: dict[str, Endpoint] = {}  # by resource name
        self._seconds: dict[str, Endpoint] = {}  # second registrations, by resource name
        self._resources: dict[str, Resource] = {}
        self._watch = faults.Watch(Path(places.device_plugins))
        self._kubelet: tuple[int, int] | None = None
        self._registered = False
        self._retry_at = 0.0
        self._scan_at = 0.0
        self._stop = threading.Event()
        self._restart = threading.Event()
        self._kubelet_left = threading.Event()

    def stop(self) -> None:
        """End the run with status 0; safe in a signal handler."""
        self._stop.set()

    def restart(self) -> None:
        """Discover and register again; safe in a signal handler."""
        self._restart.set()

    def run(self) -> int:
        """Live until stopped; the exit status that the vendor's plugin would have."""
        try:
            self._watch.poll()
            if not self._first_scan():
                return 0
            while not self._stop.is_set():
                self._step()
                self._stop.wait(POLL_SECONDS)
        except PluginExit as end:
            for line in end.message.splitlines()[:1]:
                _log.error("%s", line)
            self._leave()
            return end.code
        self._leave()
        _log.info("stopped")
        return 0

    def _first_scan(self) -> bool:
        """Read the hardware; False where the plugin is told to wait out a failure and was stopped meanwhile."""
        try:
            self._scan()
        except PluginExit as end:
            if not self._plugin.waits_on_error:
                raise
            _log.error("%s; fail-on-init-error is off, waiting indefinitely", end.message)
            while not self._stop.wait(3600):
                pass
            return False
        return True

    def _stream_ended(self, name: str) -> None:
        # A second registration takes the kubelet away from the first; that is no end of the kubelet.
        if not faults.find(self._watch.of(name), "second-registration"):
            self._kubelet_left.set()

    def _leave(self) -> None:
        if self._plugin.removes_sockets:
            self._stop_endpoints()

    def _step(self) -> None:
        changed = self._watch.poll()
        if self._watch.problem:
            _log.warning("%s", self._watch.problem)
            self._watch.problem = ""
        if any(faults.find(self._watch.of(name), "crash") for name in self._resources):
            raise PluginExit("simulated fault: crash")
        if self._kubelet_left.is_set() and self._plugin.ends_with_kubelet:
            raise PluginExit("the kubelet's stream ended, leaving the restart to the DaemonSet")
        if self._restart.is_set():
            self._restart.clear()
            self._stop_endpoints()
            self._scan()
        if self._plugin.scan_seconds and time.monotonic() >= self._scan_at:
            self._scan()
        self._keep_registered()
        flapping = any(faults.find(self._watch.of(name), "device-flap") for name in self._resources)
        if changed or flapping:
            self._apply_faults()

    def _scan(self) -> None:
        self._scan_at = time.monotonic() + self._plugin.scan_seconds
        found = {resource.name: resource for resource in self._plugin.discover()}
        if found == self._resources and set(found) == set(self._endpoints):
            return
        _log.info("found %s", ", ".join(f"{len(r.devices)} {name}" for name, r in found.items()) or "no devices")
        self._resources = found
        for name in [name for name in self._endpoints if name not in found]:
            self._endpoints.pop(name).stop()
        for name, resource in found.items():
            if name in self._endpoints:
                self._endpoints[name].service.update(resource, self._watch.of(name))
            else:
                self._open(resource)
                self._registered = False

    def _open(self, resource: Resource) -> None:
        path = os.path.join(self._places.device_plugins, resource.endpoint)
        if self._plugin.refuses_taken_socket and is_served(path):
            raise PluginExit(f"Socket {path} is already in use")
        self._endpoints[resource.name] = self._new_endpoint(resource, resource.endpoint)

    def _new_endpoint(self, resource: Resource, name: str) -> Endpoint:
        service = ResourceService(self._plugin, resource, lambda: self._stream_ended(resource.name))
        service.update(resource, self._watch.of(resource.name))
        endpoint = Endpoint(service, self._places.device_plugins, name)
        try:
            endpoint.serve()
        except OSError as error:
            raise PluginExit(str(error)) from error
        return endpoint

    def _stop_endpoints(self) -> None:
        for endpoint in (*self._seconds.values(), *self._endpoints.values()):
            endpoint.stop()
            Path(endpoint.path).unlink(missing_ok=True)
        self._seconds, self._endpoints = {}, {}
        self._registered = False

    def _keep_registered(self) -> None:
        """Register once a kubelet is there, and again after it started anew."""
        kubelet = self._kubelet_socket()
        if kubelet is None:
            return
        if self._registered and kubelet != self._kubelet:
            _log.info("the kubelet started anew")
            if self._plugin.ends_with_kubelet:
                raise PluginExit("the kubelet started anew, leaving the restart to the DaemonSet")
            self._reopen()
        elif self._lost_socket():
            _log.info("a socket is gone, serving it again")
            self._reopen()
        if not self._registered and time.monotonic() >= self._retry_at:
            self._register(kubelet)

    def _lost_socket(self) -> bool:
        return any(
            not endpoint.is_there() and not faults.find(self._watch.of(name), "socket-removed")
            for name, endpoint in self._endpoints.items()
        )

    def _reopen(self) -> None:
        self._stop_endpoints()
        for resource in self._resources.values():
            self._open(resource)

    def _kubelet_socket(self) -> tuple[int, int] | None:
        try:
            status = os.stat(os.path.join(self._places.device_plugins, "kubelet.sock"))
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns

    def _register(self, kubelet: tuple[int, int]) -> None:
        for name, endpoint in self._endpoints.items():
            try:
                endpoint.register(name)
            except OSError as error:
                _log.error("%s; trying again in %.0f s", error, RETRY_SECONDS)
                self._retry_at = time.monotonic() + RETRY_SECONDS
                return
            _log.info("registered %s at %s", name, endpoint.name)
        self._kubelet = kubelet
        self._registered = bool(self._endpoints)
        if self._registered:
            self._apply_faults()

    def _apply_faults(self) -> None:
        for name, endpoint in list(self._endpoints.items()):
            active = self._watch.of(name)
            was_hanging = faults.find(endpoint.service.active, "hang") is not None
            hangs = faults.find(active, "hang") is not None
            if hangs and not was_hanging and endpoint.service.has_listed:
                # A kubelet keeps the last list of a stream, so only a new registration can leave it without one.
                endpoint = self._renew(name)
            endpoint.service.update(self._resources[name], active)
            if faults.find(active, "socket-removed"):
                Path(endpoint.path).unlink(missing_ok=True)
            self._second_registration(name, faults.find(active, "second-registration") is not None)

    def _renew(self, name: str) -> Endpoint:
        self._endpoints.pop(name).stop()
        self._kubelet_left.clear()
        endpoint = self._new_endpoint(self._resources[name], self._resources[name].endpoint)
        self._endpoints[name] = endpoint
        self._registered = False
        return endpoint

    def _second_registration(self, name: str, wanted: bool) -> None:
        resource = self._resources[name]
        if wanted and name not in self._seconds and self._registered:
            second = self._new_endpoint(resource, f"second-{resource.endpoint}")
            self._seconds[name] = second
            try:
                second.register(name)
            except OSError as error:
                _log.error("%s", error)
        elif wanted and name in self._seconds:
            self._seconds[name].service.update(resource, self._watch.of(name))
        elif not wanted and name in self._seconds:
            second = self._seconds.pop(name)
            second.stop()
            Path(second.path).unlink(missing_ok=True)
            self._renew(name)
