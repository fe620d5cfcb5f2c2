# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API client: what goes over the wire, and the one line for each kind of failure."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import ApiError, GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import client as client_module
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import failures
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster, ConnectionOptions
from tests.fixtures.fake_api import FakeApi


@pytest.fixture
def api():
    with FakeApi() as server:
        yield server


@pytest.fixture
def cluster(api, tmp_path):
    return Cluster.connect(ConnectionOptions(kubeconfig=api.kubeconfig(tmp_path / "kubeconfig")))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(client_module.time, "sleep", lambda seconds: None)
    monkeypatch.delenv("KUBECONFIG", raising=False)


def certificate(days, address="127.0.0.1"):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    begin = now - datetime.timedelta(days=400)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(begin)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return built.public_bytes(serialization.Encoding.PEM), private


def test_version_and_token(api, cluster):
    assert cluster.version() == "v1.36.3"


def test_list_reads_all_pages(api, cluster):
    for number in range(7):
        api.add("/api/v1/nodes", {"metadata": {"name": f"n-{number}"}})
    items = cluster.list("/api/v1/nodes", limit=3)
    assert [item["metadata"]["name"] for item in items] == [f"n-{number}" for number in range(7)]
    assert len(api.calls("GET", "/api/v1/nodes")) == 3


def test_list_starts_over_when_its_token_is_too_old(api, cluster):
    for number in range(5):
        api.add("/api/v1/nodes", {"metadata": {"name": f"n-{number}"}})
    sent = []
    real = cluster._json

    def once_expired(method, path, query=None, *rest):
        sent.append(query)
        if query.get("continue") and len(sent) == 2:
            raise ApiError("expired", status=410)
        return real(method, path, query, *rest)

    cluster._json = once_expired
    assert len(cluster.list("/api/v1/nodes", limit=2)) == 5
    assert "limit" not in sent[-1]


def test_apply_names_the_manager_and_tries(api, cluster):
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
    cluster.apply("/api/v1/namespaces/x", body, dry_run=True)
    assert "/api/v1/namespaces/x" not in api.objects
    method, _path, query, _body = api.requests[-1]
    assert (method, query["fieldManager"], query["force"], query["dryRun"]) == ("PATCH", "gpuops.k8s", "false", "All")
    cluster.apply("/api/v1/namespaces/x", body, force=True)
    assert "/api/v1/namespaces/x" in api.objects


def test_delete_of_what_is_gone(cluster):
    cluster.delete("/api/v1/namespaces/nowhere")


def test_delete_collection_needs_a_selector(cluster):
    with pytest.raises(GpuOpsError, match="without a label selector"):
        cluster.delete_collection("/api/v1/namespaces/x/pods", label_selector="")


def test_watch_sees_changes_and_ends(api, cluster):
    api.add("/api/v1/namespaces/a/pods", {"metadata": {"name": "p"}})
    _items, version = cluster.list_with_version("/api/v1/namespaces/a/pods")
    timer = threading.Timer(0.1, lambda: api.add("/api/v1/namespaces/a/pods", {"metadata": {"name": "q"}}))
    timer.start()
    events = cluster.watch("/api/v1/namespaces/a/pods", resource_version=version, timeout_seconds=1)
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "q")]


def test_forbidden_says_what_to_grant(api, cluster):
    message = 'nodes is forbidden: User "u" cannot list resource "nodes" in API group "" at the cluster scope'
    api.refuse("GET", "/api/v1/nodes", 403, message)
    with pytest.raises(ApiError) as caught:
        cluster.list("/api/v1/nodes")
    assert (caught.value.status, caught.value.reason, caught.value.body_message) == (403, "Forbidden", message)
    assert caught.value.line().endswith('Grant the verb "list" on "nodes" (API group core) by a ClusterRole.')


def test_quota_refusal_is_no_matter_of_grants(api, cluster):
    api.refuse("POST", "/api/v1/namespaces/a/pods", 403, 'pods "p" is forbidden: exceeded quota: q')
    with pytest.raises(ApiError) as caught:
        cluster.create("/api/v1/namespaces/a/pods", {"metadata": {"name": "p"}})
    assert "exceeded quota" in caught.value.line()
    assert "Grant" not in caught.value.line()


@pytest.mark.parametrize("status", [429, 503])
def test_reads_are_tried_again_a_few_times(api, cluster, status):
    api.refuse("GET", "/version", status, "busy", times=2)
    assert cluster.version() == "v1.36.3"
    api.refuse("GET", "/version", status, "busy")
    with pytest.raises(ApiError) as caught:
        cluster.version()
    assert caught.value.status == status
    assert len(api.calls("GET", "/version")) == 3 + 4


def test_changes_are_not_sent_twice(api, cluster):
    api.refuse("POST", "/api/v1/namespaces", 503, "busy")
    with pytest.raises(ApiError):
        cluster.create("/api/v1/namespaces", {"metadata": {"name": "x"}})
    assert len(api.calls("POST")) == 1


def test_server_that_is_not_there():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(ApiError) as caught:
        Cluster.connect(ConnectionOptions(host=f"http://127.0.0.1:{port}")).version()
    assert (caught.value.status, caught.value.reason) == (0, "Unreachable")
    assert "Connection refused" in caught.value.line()
    assert "0x" not in caught.value.line()


def test_server_that_does_not_answer():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        options = ConnectionOptions(host=f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=1)
        with pytest.raises(ApiError, match="no answer within 1 s"):
            Cluster.connect(options).version()


class _Answer(BaseHTTPRequestHandler):
    answer = (401, b'{"kind":"Status","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}')

    def do_GET(self):
        self.send_response(self.answer[0])
        self.send_header("Content-Length", str(len(self.answer[1])))
        self.end_headers()
        self.wfile.write(self.answer[1])

    def log_message(self, *args):
        pass


@pytest.fixture
def tls_server(tmp_path):
    servers = []

    def start(certificate_pem, key, handler=_Answer, client_ca=None):
        (tmp_path / "server.pem").write_bytes(certificate_pem + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "server.pem")
        if client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=client_ca.decode())
        server = HTTPServer(("127.0.0.1", 0), handler)
        server.handle_error = lambda *args: None
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        return f"https://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_expired_client_certificate_is_named(tls_server, tmp_path):
    url = tls_server(*certificate(10))
    expired, key = certificate(-3)
    (tmp_path / "client.pem").write_bytes(expired)
    (tmp_path / "client.key").write_bytes(key)
    options = ConnectionOptions(
        host=url, validate_certs=False, client_cert=str(tmp_path / "client.pem"), client_key=str(tmp_path / "client.key")
    )
    with pytest.raises(ApiError) as caught:
        Cluster.connect(options).version()
    assert caught.value.status == 401
    assert "client certificate of the kubeconfig expired at" in caught.value.line()


def test_server_that_refuses_the_client_certificate(tls_server):
    own, key = certificate(10)
    with pytest.raises(ApiError) as caught:
        Cluster.connect(ConnectionOptions(host=tls_server(own, key, client_ca=own), validate_certs=False)).version()
    assert caught.value.reason == "Tls"
    assert "refused the client certificate" in caught.value.line()


@pytest.mark.parametrize(
    ("days", "address", "trusted", "words"),
    [
        (10, "127.0.0.1", False, "did not sign"),
        (-2, "127.0.0.1", True, "out of its time"),
        (10, "127.0.0.2", True, "does not name this address"),
    ],
)
def test_server_certificate_that_cannot_be_trusted(tls_server, tmp_path, days, address, trusted, words):
    own, key = certificate(days, address)
    authority = own if trusted else certificate(10)[0]
    (tmp_path / "ca.pem").write_bytes(authority)
    with pytest.raises(ApiError) as caught:
        Cluster.connect(ConnectionOptions(host=tls_server(own, key), ca_cert=str(tmp_path / "ca.pem"))).version()
    assert caught.value.reason == "Tls"
    assert words in caught.value.line()


def test_plain_server_behind_a_tls_address(api):
    with pytest.raises(ApiError, match="does not speak TLS"):
        Cluster.connect(ConnectionOptions(host=api.url.replace("http:", "https:"))).version()


def test_answer_that_is_not_json(tls_server):
    class Page(_Answer):
        answer = (200, b"<html>login</html>")

    with pytest.raises(ApiError, match="the answer is not JSON"):
        Cluster.connect(ConnectionOptions(host=tls_server(*certificate(10), Page), validate_certs=False)).version()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        ("", "it is empty"),
        ("- a", "not a mapping"),
        ("{a: [", "not YAML"),
        ("contexts: {}\nclusters: 3", "is not a list"),
        ("contexts: []", "holds no context"),
        ("contexts: [{name: a}]", "sets no current-context"),
        ("current-context: b\ncontexts: [{name: a}]", "Known contexts: a"),
        ("current-context: a\ncontexts: [{name: a, context: {cluster: gone, user: gone}}]", "gone"),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [{name: a}]",
            "valid kubeconfig",
        ),
    ],
)
def test_kubeconfig_mistakes(tmp_path, content, words):
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(GpuOpsError) as caught:
        Cluster.connect(ConnectionOptions(kubeconfig=str(path)))
    assert words in caught.value.line()
    assert "\n" not in caught.value.line()


def test_kubeconfig_of_bytes(tmp_path):
    (tmp_path / "k").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GpuOpsError, match="k: "):
        Cluster.connect(ConnectionOptions(kubeconfig=str(tmp_path / "k")))


def test_unknown_context(api, tmp_path):
    with pytest.raises(GpuOpsError, match="Known contexts: fake"):
        Cluster.connect(ConnectionOptions(kubeconfig=api.kubeconfig(tmp_path / "k"), context="other"))


def test_nothing_to_connect_to(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(GpuOpsError, match="no kubeconfig was given"):
        Cluster.connect(ConnectionOptions())


def test_missing_library(monkeypatch):
    monkeypatch.setattr(client_module, "_LIBRARY_ERROR", "ModuleNotFoundError: No module named 'kubernetes'")
    with pytest.raises(GpuOpsError, match="pip install kubernetes"):
        Cluster.connect(ConnectionOptions(host="http://127.0.0.1:1"))


def test_end_of_a_certificate():
    pem, _key = certificate(5)
    end = failures.certificate_end(pem)
    left = end - datetime.datetime.now(datetime.timezone.utc)
    assert datetime.timedelta(days=4) < left < datetime.timedelta(days=6)
    assert failures.certificate_end(b"nothing") is None
    assert failures.certificate_end(b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----") is None
