# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The only door to the Kubernetes API: plain dictionaries in and out, one clear line for every failure.

This file alone knows the C(kubernetes) library: it takes the kubeconfig, the credentials and the
connection pool from there. Paths are those of the API, for example C(/api/v1/nodes).
"""

from __future__ import annotations

import json
import os
import ssl
import time
import traceback
from typing import Any, Dict, Iterator, List, Optional, Tuple
from urllib.parse import urlencode

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import ApiError, GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import failures, wire
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.connection import (
    ConnectionOptions,
    check_kubeconfig,
    choose_context,
)

try:
    import kubernetes
    import urllib3
    import yaml
    from urllib3.exceptions import HTTPError, InsecureRequestWarning, NewConnectionError, ProtocolError, SSLError
    from urllib3.exceptions import TimeoutError as NoAnswerError

    _LIBRARY_ERROR = ""
except ImportError:
    _LIBRARY_ERROR = traceback.format_exc().strip().splitlines()[-1]

__all__ = ["ApiError", "Cluster", "ConnectionOptions"]

_READ_ATTEMPTS = 4
_RETRY_STATUSES = (429, 502, 503, 504)
_LONGEST_PAUSE = 5.0
_JSON = "application/json"

Query = Optional[Dict[str, Any]]


class Cluster:
    """One connection to one cluster. All methods raise ApiError when the API refuses or does not answer."""

    def __init__(self, api_client: Any, timeout: int = 30) -> None:
        """Wrap a client of the C(kubernetes) library; use C(connect) to make one."""
        self._configuration = api_client.configuration
        self._pool = api_client.rest_client.pool_manager
        self._agent = api_client.default_headers.get("User-Agent", "gpuops.k8s")
        self._timeout = timeout
        self.server = str(self._configuration.host).rstrip("/")

    @classmethod
    def connect(cls, options: ConnectionOptions) -> "Cluster":
        """Read the credentials and prepare the connection; nothing is sent yet.

        Raises GpuOpsError if the library or the kubeconfig is missing, unreadable or wrong.
        """
        if _LIBRARY_ERROR:
            raise GpuOpsError(
                f"Connecting to the cluster: the Python library kubernetes cannot be used ({_LIBRARY_ERROR})",
                "Install it for the Python that runs this module: pip install kubernetes",
            )
        configuration = _configuration(options)
        try:
            client = kubernetes.client.ApiClient(configuration)
        except (OSError, ValueError) as error:  # an unreadable certificate shows up here
            what = f"Preparing the connection to {configuration.host}: {error}"
            raise GpuOpsError(what, _credentials_hint(configuration)) from None
        return cls(client, options.timeout)

    def get(self, path: str, query: Query = None) -> Dict[str, Any]:
        """One object or one page."""
        return self._json("GET", path, query)

    def list(self, path: str, *, label_selector: str = "", field_selector: str = "", limit: int = 500) -> List[Dict[str, Any]]:
        """All items of a collection, page by page; each item gets its apiVersion and kind."""
        return self.list_with_version(path, label_selector=label_selector, field_selector=field_selector, limit=limit)[0]

    def list_with_version(
        self, path: str, *, label_selector: str = "", field_selector: str = "", limit: int = 500
    ) -> Tuple[List[Dict[str, Any]], str]:
        """All items, and the resource version at which a watch can go on."""
        items: List[Dict[str, Any]] = []
        token = ""
        while True:
            query = wire.selectors(label_selector, field_selector)
            query.update({"limit": limit} if limit else {})
            query.update({"continue": token} if token else {})
            try:
                page = self._json("GET", path, query)
            except ApiError as error:
                if error.status != 410 or not token:
                    raise
                # The token is older than the server's history: one unpaged list instead.
                items, token, limit = [], "", 0
                continue
            items.extend(wire.with_kind(page))
            metadata = page.get("metadata") or {}
            token = metadata.get("continue") or ""
            if not token:
                return items, metadata.get("resourceVersion") or ""

    def create(self, path: str, body: Dict[str, Any], *, dry_run: bool = False) -> Dict[str, Any]:
        """Create an object in the collection at C(path) and return it."""
        return self._json("POST", path, wire.dry(dry_run), body)

    def apply(
        self, path: str, body: Dict[str, Any], *, field_manager: str = "gpuops.k8s", force: bool = False, dry_run: bool = False
    ) -> Dict[str, Any]:
        """Server-side apply of the object at C(path); returns the object as it is afterwards."""
        query = wire.dry(dry_run)
        query.update({"fieldManager": field_manager, "force": "true" if force else "false"})
        return self._json("PATCH", path, query, body, "application/apply-patch+yaml")

    def patch(
        self, path: str, body: Any, *, content_type: str = "application/merge-patch+json", dry_run: bool = False
    ) -> Dict[str, Any]:
        """Patch the object at C(path) and return it."""
        query = wire.dry(dry_run)
        query["fieldManager"] = "gpuops.k8s"
        return self._json("PATCH", path, query, body, content_type)

    def delete(self, path: str, *, grace_seconds: Optional[int] = None, propagation: str = "Background") -> None:
        """Delete the object at C(path); one that is already gone is fine."""
        options: Dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self._json("DELETE", path, None, options)
        except ApiError as error:
            if error.status != 404:
                raise

    def delete_collection(self, path: str, *, label_selector: str) -> None:
        """Delete all objects of a collection that carry the labels; an empty selector is refused."""
        if not label_selector:
            raise GpuOpsError(f"Deleting a collection ({path}) without a label selector", "Name the labels.")
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        try:
            self._json("DELETE", path, {"labelSelector": label_selector}, options)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(
        self,
        path: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_seconds: float = 30,
    ) -> Iterator[Dict[str, Any]]:
        """Events {"type", "object"} until the time is over or the connection ends.

        A broken connection ends the watch quietly, so the caller lists again. Raises ApiError with
        status 410 when C(resource_version) is too old.
        """
        query = wire.selectors(label_selector, field_selector)
        query.update({"watch": "true", "timeoutSeconds": max(1, int(timeout_seconds)), "allowWatchBookmarks": "true"})
        if resource_version:
            query["resourceVersion"] = resource_version
        response = self._send("GET", path, query, None, _JSON, read_timeout=timeout_seconds + 10, stream=True)
        try:
            for event in _events(response, time.monotonic() + timeout_seconds):
                if event.get("type") == "ERROR":
                    status = event.get("object") or {}
                    code = int(status.get("code") or 500)
                    raise failures.api_error(("GET", path, query), self.server, code, json.dumps(status))
                if event.get("type") != "BOOKMARK":
                    yield event
        finally:
            response.close()

    def text(self, path: str, query: Query = None) -> str:
        """A text answer, for example the log of a pod."""
        response = self._send("GET", path, query, None, "*/*")
        return bytes(response.data).decode("utf-8", "replace")

    def version(self) -> str:
        """The server's version, for example v1.36.3."""
        return str(self._json("GET", "/version").get("gitVersion") or "")

    def _json(
        self, method: str, path: str, query: Query = None, body: Any = None, content_type: str = _JSON
    ) -> Dict[str, Any]:
        response = self._send(method, path, query, body, content_type)
        try:
            document = json.loads(response.data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise ApiError(
                f"{failures.verb_of(method, path, query)} {failures.subject(path)} at {self.server}: the answer is not JSON",
                "Check that the address is a Kubernetes API server and not a proxy in between.",
                status=response.status,
                reason="NotJson",
            )
        return document

    def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: Any,
        content_type: str,
        read_timeout: Optional[float] = None,
        stream: bool = False,
    ) -> Any:
        """Send with bounded retries; only what cannot have changed anything is sent again."""
        request = (method, path, query)
        attempt = 1
        while True:
            last = attempt >= _READ_ATTEMPTS
            pause = min(_LONGEST_PAUSE, 0.25 * 2**attempt)
            try:
                response = self._once(request, body, content_type, read_timeout or self._timeout, stream)
            except ApiError as error:
                if last or method != "GET" or error.reason not in ("Unreachable", "Reset"):
                    raise
            else:
                if response.status < 400:
                    return response
                text = bytes(response.data if not stream else response.read()).decode("utf-8", "replace")
                # 429 is a refusal before any work was done, so a change may be sent again too.
                retry = response.status == 429 or (method == "GET" and response.status in _RETRY_STATUSES)
                if last or not retry:
                    hint = _credentials_hint(self._configuration)
                    raise failures.api_error(request, self.server, response.status, text, hint)
                pause = min(_LONGEST_PAUSE, max(pause, wire.retry_after(response)))
            time.sleep(pause)
            attempt += 1

    def _once(self, request: Tuple[str, str, Query], body: Any, content_type: str, read_timeout: float, stream: bool) -> Any:
        method, path, query = request
        url = self.server + path
        if query:
            url += ("&" if "?" in path else "?") + urlencode(query)
        data = None if body is None else json.dumps(body)
        what = f"{failures.verb_of(method, path, query)} {failures.subject(path)} at {self.server}"
        try:
            return self._pool.request(
                method,
                url,
                body=data,
                headers=self._headers(content_type, method),
                timeout=urllib3.Timeout(connect=min(10, self._timeout), read=read_timeout),
                retries=False,
                preload_content=not stream,
            )
        except (SSLError, ssl.SSLError) as error:
            raise failures.tls_error(request, self.server, _detail(error), _credentials_hint(self._configuration)) from None
        except NewConnectionError as error:
            hint = "Check that the API server runs and that its address is right."
            raise ApiError(f"{what}: not reached: {_detail(error)}", hint, reason="Unreachable") from None
        except NoAnswerError:
            hint = "Check the network to the server, or raise request_timeout."
            raise ApiError(f"{what}: no answer within {read_timeout:g} s", hint, reason="Timeout") from None
        except ProtocolError as error:
            raise ApiError(f"{what}: the connection broke: {_detail(error)}", "Try again.", reason="Reset") from None
        except (HTTPError, OSError, ValueError) as error:
            hint = "Check the server address of the kubeconfig."
            raise ApiError(f"{what}: {_detail(error)}", hint, reason="Unreachable") from None

    def _headers(self, content_type: str, method: str) -> Dict[str, str]:
        headers = {"User-Agent": self._agent, "Accept": "*/*" if content_type == "*/*" else _JSON}
        if method != "GET":
            headers["Content-Type"] = content_type
        token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        elif getattr(self._configuration, "username", None):
            headers["Authorization"] = self._configuration.get_basic_auth_token()
        return headers


def _configuration(options: ConnectionOptions) -> Any:
    files = options.kubeconfig_files(os.environ)
    configuration = kubernetes.client.Configuration()
    if files:
        _load_kubeconfig(configuration, files, options.context)
    elif not options.host:
        try:
            kubernetes.config.load_incluster_config(client_configuration=configuration)
        except kubernetes.config.ConfigException as error:
            raise GpuOpsError(f"Reading the pod's own account: {error}", "Give the option kubeconfig.") from None
    _override(configuration, options)
    if configuration.verify_ssl is False:
        urllib3.disable_warnings(InsecureRequestWarning)
    return configuration


def _override(configuration: Any, options: ConnectionOptions) -> None:
    if options.host:
        configuration.host = options.host if "://" in options.host else f"https://{options.host}"
    if options.api_key:
        configuration.api_key = {"BearerToken": f"Bearer {options.api_key}"}
    for name, value in (
        ("ssl_ca_cert", options.ca_cert),
        ("cert_file", options.client_cert),
        ("key_file", options.client_key),
    ):
        if value:
            path = os.path.abspath(os.path.expanduser(value))
            if not os.path.isfile(path):
                raise GpuOpsError(f"Reading the certificate file {path}: no such file", "Give the path of an existing file.")
            setattr(configuration, name, path)
    if options.validate_certs is not None:
        configuration.verify_ssl = options.validate_certs


def _load_kubeconfig(configuration: Any, files: List[str], context: Optional[str]) -> None:
    shown = os.pathsep.join(files)
    documents = [check_kubeconfig(_read_yaml(path), path) for path in files]
    name = choose_context(documents, context, shown)
    try:
        kubernetes.config.load_kube_config(
            config_file=shown, context=name, client_configuration=configuration, persist_config=False
        )
    except (kubernetes.config.ConfigException, KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        raise GpuOpsError(
            f'Reading the context "{name}" of the kubeconfig {shown}: {_detail(error)}', "Give a valid kubeconfig."
        ) from None


def _read_yaml(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as stream:
            return yaml.safe_load(stream)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise GpuOpsError(f"Reading the kubeconfig {path}: {reason}", "Make it readable for this user.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise GpuOpsError(f"Reading the kubeconfig {path}: it is not YAML{where}", "Give a valid kubeconfig.") from None


def _credentials_hint(configuration: Any) -> str:
    path = getattr(configuration, "cert_file", None)
    if not path:
        return ""
    try:
        with open(path, "rb") as stream:
            return failures.certificate_problem(stream.read(), "of the kubeconfig")
    except OSError as error:
        return f"The client certificate {path} cannot be read: {error.strerror}."


def _detail(error: BaseException) -> str:
    text = str(error.args[-1]) if isinstance(error, ProtocolError) and error.args else str(error)
    if isinstance(error, NewConnectionError):
        text = text.split(": ", 1)[-1]
    return text or type(error).__name__


def _events(response: Any, deadline: float) -> Iterator[Dict[str, Any]]:
    buffer = b""
    try:
        for chunk in response.stream(65536, decode_content=True):
            buffer += chunk
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                if line.strip():
                    yield json.loads(line)
            if time.monotonic() > deadline:
                return
    except (HTTPError, OSError, ValueError):
        return
