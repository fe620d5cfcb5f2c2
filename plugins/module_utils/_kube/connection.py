# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a connection to a cluster needs, and the checks that give each mistake its own line.

Nothing here reads the network; the files of the kubeconfig are read by the client.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError

DEFAULT_KUBECONFIG = "~/.kube/config"
SERVICE_ACCOUNT_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"


@dataclass
class ConnectionOptions:
    """How to reach and to trust the API server; everything may be left out."""

    kubeconfig: Optional[str] = None
    context: Optional[str] = None
    host: Optional[str] = None
    api_key: Optional[str] = None
    ca_cert: Optional[str] = None
    client_cert: Optional[str] = None
    client_key: Optional[str] = None
    validate_certs: Optional[bool] = None
    timeout: int = 30  # seconds for one request

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> "ConnectionOptions":
        """The options out of a module's parameters (see C(connection_argument_spec))."""
        return cls(
            kubeconfig=params.get("kubeconfig"),
            context=params.get("context"),
            host=params.get("host"),
            api_key=params.get("api_key"),
            ca_cert=params.get("ca_cert"),
            client_cert=params.get("client_cert"),
            client_key=params.get("client_key"),
            validate_certs=params.get("validate_certs"),
            timeout=params.get("request_timeout") or 30,
        )

    def kubeconfig_files(self, environment: Mapping[str, str]) -> List[str]:
        """The kubeconfig files to read, in order; empty when host or the pod's own account is to be used.

        Raises GpuOpsError if a file that was named is missing, and if nothing says where the cluster is.
        """
        named = self.kubeconfig or ("" if self.host else environment.get("KUBECONFIG", ""))
        if named:
            return [_existing(path) for path in named.split(os.pathsep) if path]
        if self.host:
            return []
        default = os.path.expanduser(DEFAULT_KUBECONFIG)
        if os.path.exists(default):
            return [default]
        if environment.get("KUBERNETES_SERVICE_HOST") and os.path.exists(SERVICE_ACCOUNT_TOKEN):
            return []
        raise GpuOpsError(
            f"No cluster to connect to: no kubeconfig was given, KUBECONFIG is not set and {default} does not exist",
            "Give the option kubeconfig, or host with api_key.",
        )


def _existing(path: str) -> str:
    found = os.path.abspath(os.path.expanduser(path))
    if not os.path.exists(found):
        raise GpuOpsError(f"Reading the kubeconfig {found}: no such file", "Give the path of an existing kubeconfig.")
    if os.path.isdir(found):
        raise GpuOpsError(f"Reading the kubeconfig {found}: it is a folder", "Give the path of the file in it.")
    return found


def check_kubeconfig(document: Any, path: str) -> Mapping[str, Any]:
    """The document as a mapping; raises GpuOpsError if it is no kubeconfig."""
    if not isinstance(document, dict):
        what = "it is empty" if document is None else "its content is not a mapping"
        raise GpuOpsError(f"Reading the kubeconfig {path}: {what}", "Give a kubeconfig of the cluster.")
    for key in ("clusters", "contexts", "users"):
        if not isinstance(document.get(key) or [], list):
            raise GpuOpsError(f"Reading the kubeconfig {path}: {key} is not a list", "Give a valid kubeconfig.")
    return document


def choose_context(documents: List[Mapping[str, Any]], wanted: Optional[str], path: str) -> str:
    """The name of the context to use; raises GpuOpsError with the known names if there is none such."""
    names = [
        str(entry["name"])
        for document in documents
        for entry in document.get("contexts") or []
        if isinstance(entry, dict) and entry.get("name")
    ]
    name = wanted or next((str(item["current-context"]) for item in documents if item.get("current-context")), "")
    if not names:
        raise GpuOpsError(f"Reading the kubeconfig {path}: it holds no context", "Give a kubeconfig of the cluster.")
    if not name:
        raise GpuOpsError(
            f"Reading the kubeconfig {path}: it sets no current-context", f"Give the option context: {', '.join(names)}."
        )
    if name not in names:
        raise GpuOpsError(
            f'Choosing the context "{name}" in {path}: there is no such context', f"Known contexts: {', '.join(names)}."
        )
    return name
