# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an API failure to one line: pure functions over methods, paths, statuses and messages."""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import datetime, timezone
from typing import Any, Dict, Optional, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import ApiError

_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


def describe_path(path: str) -> Dict[str, str]:
    """The parts of an API path: group, version, resource, namespace, name, subresource ("" where absent)."""
    parts = [part for part in path.split("?")[0].split("/") if part]
    found = {"group": "", "version": "", "resource": "", "namespace": "", "name": "", "subresource": ""}
    if parts[:1] == ["api"]:
        found["version"], rest = "".join(parts[1:2]), parts[2:]
    elif parts[:1] == ["apis"]:
        found["group"], found["version"], rest = "".join(parts[1:2]), "".join(parts[2:3]), parts[3:]
    else:
        return found
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        found["namespace"], rest = rest[1], rest[2:]
    found["resource"] = "".join(rest[:1])
    found["name"] = "".join(rest[1:2])
    found["subresource"] = "/".join(rest[2:])
    return found


def verb_of(method: str, path: str, query: Optional[Dict[str, Any]] = None) -> str:
    """The RBAC verb that a request needs."""
    parts = describe_path(path)
    named = bool(parts["name"]) or not parts["resource"]
    if method == "GET":
        if query and query.get("watch"):
            return "watch"
        return "get" if named else "list"
    if method == "DELETE" and not named:
        return "deletecollection"
    return _VERBS.get(method, method.lower())


def subject(path: str) -> str:
    """The path in words: pods/log "x" in namespace "y"."""
    parts = describe_path(path)
    if not parts["resource"]:
        return path
    words = parts["resource"] + (f"/{parts['subresource']}" if parts["subresource"] else "")
    if parts["group"]:
        words += f".{parts['group']}"
    if parts["name"]:
        words += f' "{parts["name"]}"'
    if parts["namespace"]:
        words += f' in namespace "{parts["namespace"]}"'
    return words


def _grant_hint(method: str, path: str, query: Optional[Dict[str, Any]]) -> str:
    parts = describe_path(path)
    if not parts["resource"]:
        return f"Allow the account to read {path}."
    resource = parts["resource"] + (f"/{parts['subresource']}" if parts["subresource"] else "")
    kind = f'a Role in namespace "{parts["namespace"]}"' if parts["namespace"] else "a ClusterRole"
    group = parts["group"] or "core"
    return f'Grant the verb "{verb_of(method, path, query)}" on "{resource}" (API group {group}) by {kind}.'


def parse_status(body: str) -> Tuple[str, str]:
    """Reason and message of a Status object, ("", first line of the text) for anything else."""
    try:
        status = json.loads(body)
    except ValueError:
        return "", body.strip().splitlines()[0][:200] if body.strip() else ""
    if not isinstance(status, dict):
        return "", str(status)[:200]
    return str(status.get("reason") or ""), str(status.get("message") or "")


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def _hint(status: int, reason: str, message: str, request: Tuple[str, str, Optional[Dict[str, Any]]], credentials: str) -> str:
    method, path, query = request
    if status == 401:
        return credentials or "The server knows neither this token nor this client certificate; get new credentials."
    if status == 403 and "cannot " in message:
        return _grant_hint(method, path, query)
    if status == 409 and reason == "Conflict" and method == "PATCH":
        return "Another manager owns these fields; let it go, or take them over on purpose."
    if status == 429:
        return "The server asks for fewer requests; try again later."
    if status in (500, 502, 503, 504):
        return "The server or its storage is not well; look at its own health (/readyz)."
    return ""


def api_error(
    request: Tuple[str, str, Optional[Dict[str, Any]]], server: str, status: int, body: str, credentials: str = ""
) -> ApiError:
    """The error for an answer with a failing status.

    C(request) is method, path and query; C(credentials) is what is known to be wrong with them.
    """
    method, path, query = request
    reason, message = parse_status(body)
    reason = reason or _REASONS.get(status, f"HTTP {status}")
    text = f"{verb_of(method, path, query)} {subject(path)} at {server}: {status} {reason}"
    if message and message != reason:
        text += f": {message}"
    hint = _hint(status, reason, message, request, credentials)
    return ApiError(text, hint, status=status, reason=reason, body_message=message)


def tls_error(request: Tuple[str, str, Optional[Dict[str, Any]]], server: str, detail: str, credentials: str) -> ApiError:
    """The error for a handshake that failed; C(detail) is the library's text."""
    method, path, query = request
    low = detail.lower()
    if credentials:
        hint = credentials
    elif "certificate required" in low or "bad certificate" in low or "alert certificate" in low:
        hint = "The server refused the client certificate of the kubeconfig; get a new one."
    elif "eof occurred" in low or "connection reset" in low:
        # With TLS 1.3 the alert is sometimes lost behind the end of the connection.
        hint = "Perhaps the server refused the client certificate of the kubeconfig, or it restarts; try again, or renew it."
    elif "has expired" in low or "not yet valid" in low:
        hint = "The server's certificate is out of its time; renew it, or check the clock of this machine."
    elif "hostname mismatch" in low or "doesn't match" in low or "not valid for" in low:
        hint = "The server's certificate does not name this address; use the name that it was made for."
    elif "wrong version number" in low or "unknown protocol" in low or "record layer failure" in low:
        hint = "This port does not speak TLS; check the server address."
    elif "self-signed" in low or "self signed" in low or "unable to get local issuer" in low:
        hint = "The kubeconfig's authority did not sign the server's certificate; use this cluster's own kubeconfig."
    else:
        hint = "Check the certificate authority and the client certificate of the kubeconfig."
    text = f"{verb_of(method, path, query)} {subject(path)} at {server}: TLS handshake failed: {detail}"
    return ApiError(text, hint, status=0, reason="Tls")


def _der(data: bytes, at: int) -> Tuple[int, int, int]:
    """Tag, start and end of the content of the DER element at C(at)."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(data[start : start + count], "big"), start + count
    return tag, start, start + length


def certificate_end(pem: bytes) -> Optional[datetime]:
    """The time after which the first certificate of a PEM text is no longer valid, None if it cannot be read."""
    match = _PEM.search(pem)
    if not match:
        return None
    try:
        data = base64.b64decode(b"".join(match.group(1).split()))
        at = _der(data, _der(data, 0)[1])[1]  # into Certificate, into TBSCertificate
        if data[at] == 0xA0:  # explicit version
            at = _der(data, at)[2]
        for _skipped in ("serial number", "signature algorithm", "issuer"):
            at = _der(data, at)[2]
        at = _der(data, _der(data, at)[1])[2]  # into Validity, past notBefore
        tag, start, end = _der(data, at)
        text = data[start:end].decode("ascii")
        if tag == 0x17:  # UTCTime has a year of two digits, 50 and above mean the last century
            text = ("19" if int(text[:2]) >= 50 else "20") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
    except (IndexError, ValueError, binascii.Error):
        return None


def certificate_problem(pem: bytes, name: str, now: Optional[datetime] = None) -> str:
    """A sentence if the certificate is past its end, "" if it is fine or cannot be read."""
    end = certificate_end(pem)
    if end is None or end > (now or datetime.now(timezone.utc)):
        return ""
    return f"The client certificate {name} expired at {end.isoformat()}; get a new kubeconfig."
