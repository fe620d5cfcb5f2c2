# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control plane as host processes: etcd, API server, controller manager and scheduler."""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import ssl
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpuops_lab import control_groups
from gpuops_lab.command import last_line
from gpuops_lab.errors import LabError
from gpuops_lab.paths import state_folder, write_atomically
from gpuops_lab.pki import Authority, Identity, write_service_account_key
from gpuops_lab.place import API_SERVICE_ADDRESS, SERVICE_RANGE, Place

API_PORT = 6443


@dataclass(frozen=True)
class ControlPlane:
    """What nodes and users need of a started control plane."""

    place: Place
    authority: Authority
    kubeconfig: Path

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{self.place.host_address}:{API_PORT}"


def group(place: Place) -> str:
    """Control group of the control plane's processes."""
    return f"{place.control_group}/control-plane"


def start(place: Place, programs: dict[str, Path]) -> ControlPlane:
    """Make keys, write kubeconfigs and start the four processes; does not wait for readiness."""
    authority = Authority(place.folder / "pki")
    control_groups.create(group(place))
    write_service_account_key(authority.folder / "service-account.key")
    addresses = (place.host_address, API_SERVICE_ADDRESS, "127.0.0.1")
    authority.issue("apiserver", Identity("kube-apiserver", addresses=addresses, names=("localhost", "kubernetes")))
    authority.issue("kubelet-client", Identity("gpuops-lab-apiserver", "system:masters"))
    server = f"https://{place.host_address}:{API_PORT}"
    users = {
        "admin": Identity("gpuops-lab-admin", "system:masters"),
        "controller-manager": Identity("system:kube-controller-manager"),
        "scheduler": Identity("system:kube-scheduler"),
    }
    for name, identity in users.items():
        write_kubeconfig(authority, name, identity, server, place.folder / "pki" / f"{name}.conf")
    kubeconfig = state_folder(place.name) / "kubeconfig"
    write_atomically(kubeconfig, (place.folder / "pki" / "admin.conf").read_text(encoding="utf-8"), 0o600)
    for name, arguments in _commands(place, authority.folder).items():
        _start(place, name, [str(programs[name]), *arguments])
    return ControlPlane(place, authority, kubeconfig)


def write_kubeconfig(authority: Authority, name: str, identity: Identity, server: str, path: Path) -> None:
    """Issue a client certificate and write a kubeconfig that carries it whole."""
    certificate, key = authority.issue(name, identity)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "lab", "cluster": {"server": server, "certificate-authority-data": _encoded(authority.certificate)}}
        ],
        "users": [
            {"name": name, "user": {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}}
        ],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
        "current-context": "lab",
    }
    write_atomically(path, yaml.safe_dump(document, sort_keys=False), 0o600)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _commands(place: Place, pki: Path) -> dict[str, list[str]]:
    client, peer = _free_port(), _free_port()
    etcd = f"http://127.0.0.1:{client}"
    return {
        "etcd": [
            f"--data-dir={place.folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ],
        "kube-apiserver": _api_server(place, pki, etcd),
        "kube-controller-manager": [
            f"--kubeconfig={pki / 'controller-manager.conf'}",
            f"--service-account-private-key-file={pki / 'service-account.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
        ],
        "kube-scheduler": [f"--kubeconfig={pki / 'scheduler.conf'}", "--leader-elect=false", "--secure-port=0"],
    }


def _api_server(place: Place, pki: Path, etcd: str) -> list[str]:
    return [
        f"--etcd-servers={etcd}",
        f"--bind-address={place.host_address}",
        f"--advertise-address={place.host_address}",
        f"--secure-port={API_PORT}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'service-account.key'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction,ResourceQuota",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged",
        # Node names resolve nowhere, so logs and exec go to the node's address.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(place: Place, name: str, command: list[str]) -> None:
    log = log_file(place, name)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=place.folder,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "GOGC": "60"},
            preexec_fn=lambda: control_groups.enter(group(place)),
        )


def log_file(place: Place, name: str) -> Path:
    """Where a control plane process writes its log."""
    return state_folder(place.name) / "logs" / f"{name}.log"


def running_programs(place: Place) -> set[str]:
    """Names of the control plane's programs that run."""
    names = set()
    for pid in control_groups.processes(group(place)):
        try:
            names.add(Path(os.readlink(f"/proc/{pid}/exe")).name)
        except OSError:
            continue
    return names


class ApiReader:
    """Reads the API server with a kubeconfig's client certificate; only what the lab itself waits for."""

    def __init__(self, place: Place) -> None:
        pki = place.folder / "pki"
        self._host = place.host_address
        self._context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._context.load_cert_chain(pki / "admin.crt", pki / "admin.key")

    def get(self, path: str) -> Any:
        """The answer to a GET: parsed JSON, or text where it is none.

        Raises:
            OSError: The server cannot be reached or answers other than 200.
        """
        connection = http.client.HTTPSConnection(self._host, API_PORT, context=self._context, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        if response.status != 200:
            raise OSError(f"{path}: {response.status} {response.reason}")
        return json.loads(body) if body.startswith("{") else body


def wait_ready(place: Place, timeout: float) -> None:
    """Wait until the API server is ready.

    Raises:
        LabError: A process has ended, or the time is up.
    """
    reader = ApiReader(place)
    deadline = time.monotonic() + timeout
    wanted = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    while True:
        try:
            reader.get("/readyz")
        except OSError as error:
            reason = str(error)
        else:
            return
        for name in sorted(wanted - running_programs(place)):
            log = log_file(place, name)
            raise LabError(f"{name} ended: {last_line(log.read_text(errors='replace'))}", f"read {log}")
        if time.monotonic() > deadline:
            raise LabError(
                f"the API server is not ready after {timeout:.0f} s: {reason}", f"read {log_file(place, 'kube-apiserver')}"
            )
        time.sleep(0.1)
