# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user can get wrong: one clear line or a failed check with reason and hint, and the next run works."""

from __future__ import annotations

import base64
import datetime
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.lab.harness import CHECKOUT, PROGRAMS, Lab, ansible_environment, failed_ids, process_tree


@pytest.fixture(autouse=True)
def mended(small: Lab) -> Iterator[None]:
    yield
    small.kubectl("uncordon", "nv-1")


def module(lab: Lab, name: str, arguments: dict[str, Any], kubeconfig: str = "") -> str:
    """Run one API module, want it to fail, and return its message."""
    values = {"kubeconfig": kubeconfig or str(lab.folder / "kubeconfig"), **arguments}
    environment = {**ansible_environment(), "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
    command = [PROGRAMS / "ansible", "localhost", "-m", f"gpuops.k8s.{name}", "-a", json.dumps(values)]
    done = subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    message = str(json.loads(done.stdout.partition("=>")[2])["msg"])
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("device_plugin", {"vendor": "voodoo"}, ["voodoo", "nvidia"]),
        ("device_plugin", {"vendor": "nvidia", "namespace": "No_Such"}, ["No_Such"]),
        ("device_plugin", {"vendor": "amd", "options": {"no_such_option": 1}}, ["no_such_option", "pulse"]),
        ("gpu_capacity_info", {"context": "elsewhere"}, ["elsewhere"]),
    ],
)
def test_wrong_values_are_named(small: Lab, name: str, arguments: dict[str, Any], words: list[str]) -> None:
    message = module(small, name, arguments)
    for word in words:
        assert word in message


def _kubeconfig(lab: Lab, tmp_path: Path, **changes: Any) -> Path:
    document = yaml.safe_load((lab.folder / "kubeconfig").read_text(encoding="utf-8"))
    document["clusters"][0]["cluster"].update(changes.get("cluster", {}))
    document["users"][0]["user"] = changes.get("user", document["users"][0]["user"])
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def test_a_missing_kubeconfig(small: Lab) -> None:
    assert "/no/such/kubeconfig" in module(small, "gpu_capacity_info", {}, "/no/such/kubeconfig")


def test_a_kubeconfig_that_is_none(small: Lab, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("][", encoding="utf-8")
    assert str(path) in module(small, "gpu_capacity_info", {}, str(path))


def test_an_unreachable_server(small: Lab, tmp_path: Path) -> None:
    path = _kubeconfig(small, tmp_path, cluster={"server": "https://127.0.0.1:9"})
    assert "https://127.0.0.1:9" in module(small, "gpu_capacity_info", {}, str(path))


def test_an_expired_certificate(small: Lab, tmp_path: Path) -> None:
    message = module(small, "gpu_capacity_info", {}, str(_kubeconfig(small, tmp_path, user=_expired_user(small))))
    assert "expired" in message


def _expired_user(lab: Lab) -> dict[str, str]:
    pki = Path("/var/lib/gpuops") / lab.name / "pki"
    authority = x509.load_pem_x509_certificate((pki / "ca.crt").read_bytes())
    authority_key = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "late")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now - datetime.timedelta(days=1))
        .sign(authority_key, hashes.SHA256())  # type: ignore[arg-type]
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    return {"client-certificate-data": base64.b64encode(pem).decode(), "client-key-data": base64.b64encode(private).decode()}


def test_forbidden_names_what_to_grant(small: Lab, tmp_path: Path) -> None:
    token = small.kubectl("create", "token", "default", "-n", "default").strip()
    message = module(small, "gpu_capacity_info", {}, str(_kubeconfig(small, tmp_path, user={"token": token})))
    assert "nodes" in message
    assert "list" in message


def test_an_image_that_cannot_be_pulled_is_named_early(small: Lab) -> None:
    try:
        message = module(
            small,
            "device_plugin",
            {"vendor": "nvidia", "image": "registry.invalid/no/such", "version": "v9", "wait_timeout": 60},
        )
        assert "registry.invalid/no/such:v9" in message
    finally:
        assert small.playbook("site").code == 0


def test_a_rollout_that_wants_no_pod_is_no_success(small: Lab) -> None:
    try:
        message = module(
            small, "device_plugin", {"vendor": "intel", "node_selector": {"no/such": "label"}, "wait_timeout": 60}
        )
        assert "does not run where it should" in message
        assert "no/such=label" in message
    finally:
        assert small.playbook("site").code == 0


def test_a_cordoned_gpu_node_is_red_and_named(small: Lab) -> None:
    small.kubectl("cordon", "nv-1")
    run = small.playbook("verify")
    assert run.code != 0
    failed = [check for check in small.evidence()["checks"] if check["status"] == "fail"]
    assert any(check["node"] == "nv-1" and "cordon" in (check["reason"] + check["hint"]) for check in failed)


def test_a_gpu_node_that_is_not_ready_is_red_and_named(small: Lab) -> None:
    small.inside("intel-1", "systemctl stop kubelet")
    try:
        small.kubectl("wait", "--for=condition=Ready=Unknown", "node/intel-1", "--timeout=240s")
        run = small.playbook("verify")
        assert run.code != 0
        failed = [check for check in small.evidence()["checks"] if check["status"] == "fail"]
        assert any(check["node"] == "intel-1" and "Ready" in check["reason"] for check in failed), failed_ids(small.evidence())
    finally:
        small.inside("intel-1", "systemctl start kubelet")
        small.kubectl("wait", "--for=condition=Ready", "node/intel-1", "--timeout=240s")


def _changed_inventory(lab: Lab, tmp_path: Path, change: Any) -> Path:
    document = yaml.safe_load((lab.folder / "inventory.yml").read_text(encoding="utf-8"))
    change(document["all"]["children"]["kubernetes_nodes"]["hosts"])
    path = tmp_path / "inventory.yml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def test_a_cluster_node_that_the_inventory_lacks_is_red(small: Lab, tmp_path: Path) -> None:
    run = small.playbook("verify", inventory=_changed_inventory(small, tmp_path, lambda hosts: hosts.pop("amd-1")))
    assert run.code != 0
    assert "amd-1" in json.dumps([check for check in small.evidence()["checks"] if check["status"] == "fail"])


def test_an_inventory_host_that_the_cluster_lacks_is_red(small: Lab, tmp_path: Path) -> None:
    def rename(hosts: dict[str, Any]) -> None:
        hosts["amd-9"] = hosts.pop("amd-1")

    run = small.playbook("verify", inventory=_changed_inventory(small, tmp_path, rename))
    assert run.code != 0
    failed = json.dumps([check for check in small.evidence()["checks"] if check["status"] == "fail"])
    assert "amd-9" in failed
    assert "gpu_node_name" in failed


def test_a_node_name_that_is_not_the_host_name_is_told_by_a_variable(small: Lab, tmp_path: Path) -> None:
    def rename(hosts: dict[str, Any]) -> None:
        hosts["rack-4-unit-12"] = {**hosts.pop("amd-1"), "gpu_node_name": "amd-1"}

    run = small.playbook("verify", inventory=_changed_inventory(small, tmp_path, rename))
    assert run.code == 0, run.output[-3000:]
    assert small.evidence()["verdict"] == "pass"


def test_after_an_interrupted_run_the_next_one_works_and_cleans_up(small: Lab) -> None:
    process = subprocess.Popen(
        [PROGRAMS / "ansible-playbook", "-i", small.folder / "inventory.yml", "gpuops.k8s.verify"],
        cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        small.kubectl("wait", "--for=create", "namespace/gpuops-verification", "--timeout=240s")
        _wait_for_probe_pod(small)
    finally:
        for pid in process_tree(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    run = small.playbook("verify")
    assert run.code == 0, run.output[-4000:]
    pods = json.loads(small.kubectl("get", "pods", "-A", "-l", "app.kubernetes.io/component=gpu-probe", "-o", "json"))["items"]
    assert pods == []


def _wait_for_probe_pod(lab: Lab) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if lab.kubectl("get", "pods", "-A", "-l", "app.kubernetes.io/component=gpu-probe", "-o", "name").strip():
            return
        time.sleep(0.2)
    raise AssertionError("no probe pod appeared within 60 s")
