# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images: the same from the same inputs, importable by a runtime, and able to run without one."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from gpuops_lab import images, shared_facts
from gpuops_lab.errors import LabError
from gpuops_lab.images import layer, runtime
from gpuops_lab.images.layer import Entry
from gpuops_lab.node.files import PAUSE_IMAGE

builder = sys.modules["gpuops_lab.images.build"]  # the package shows the function of this name

MEBIBYTE = 1024**2


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return images.build(tmp_path_factory.mktemp("images") / "images.tar")


class Layout:
    """An OCI layout read from a tar file."""

    def __init__(self, path: Path) -> None:
        self._tar = tarfile.open(path)  # noqa: SIM115 - read for as long as the module's tests run
        self.names = self._tar.getnames()
        self.index = json.loads(self.read("index.json"))

    def read(self, name: str) -> bytes:
        member = self._tar.extractfile(name)
        assert member is not None
        return member.read()

    def blob(self, digest: str) -> bytes:
        data = self.read(f"blobs/{digest.replace(':', '/')}")
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == digest
        return data

    def image(self, name: str) -> tuple[dict, list[bytes]]:
        entry = next(e for e in self.index["manifests"] if e["annotations"]["io.containerd.image.name"] == name)
        manifest = json.loads(self.blob(entry["digest"]))
        config = json.loads(self.blob(manifest["config"]["digest"]))
        layers = [self.blob(part["digest"]) for part in manifest["layers"]]
        assert config["rootfs"]["diff_ids"] == [part["digest"] for part in manifest["layers"]]
        assert [len(data) for data in layers] == [part["size"] for part in manifest["layers"]]
        return config["config"], layers


@pytest.fixture(scope="module")
def layout(archive):
    return Layout(archive.path)


def test_building_twice_gives_the_same_bytes(archive, tmp_path):
    second = images.build(tmp_path / "second.tar")
    assert second.digest == archive.digest
    assert second.names == archive.names
    assert second.path.read_bytes() == archive.path.read_bytes()


def test_an_archive_that_is_there_is_taken(archive):
    before = archive.path.stat().st_mtime_ns
    assert images.build(archive.path) == archive
    assert archive.path.stat().st_mtime_ns == before


def test_half_an_archive_is_made_anew(archive, tmp_path):
    path = tmp_path / "half.tar"
    path.write_bytes(archive.path.read_bytes()[:4096])
    assert images.build(path).digest == archive.digest


def test_names_and_size(archive):
    facts = shared_facts.vendors()
    assert set(archive.names) == {PAUSE_IMAGE, "gpuops.lab/probe:1", *(vendor.plugin_image for vendor in facts.values())}
    assert archive.path.stat().st_size < 120 * MEBIBYTE


def test_digest_of_inputs_follows_them(monkeypatch):
    first = images.input_digest()
    assert first == images.input_digest()
    assert first in images.default_path().name
    monkeypatch.setattr(builder, "FORMAT", "x")
    assert images.input_digest() != first


def test_every_image_is_whole_and_starts_its_vendor(layout):
    for vendor in shared_facts.vendors().values():
        config, layers = layout.image(vendor.plugin_image)
        assert config["Entrypoint"][-2:] == ["--vendor", vendor.name]
        assert len(layers) == 3
    config, layers = layout.image(PAUSE_IMAGE)
    assert config["Entrypoint"] == ["/pause"]
    assert len(layers) == 1


def test_layers_have_no_times_and_no_owners(layout):
    for data in layout.image(shared_facts.vendors()["amd"].plugin_image)[1]:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = archive.getmembers()
        assert members
        assert {(member.mtime, member.uid, member.gid) for member in members} == {(0, 0, 0)}
        names = [member.name for member in members]
        assert len(set(names)) == len(names)
        assert not [name for name in names if name.startswith(("/", ".."))]


@pytest.fixture(scope="module")
def root(layout, tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    for data in layout.image(shared_facts.vendors()["intel"].plugin_image)[1]:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(folder, filter="fully_trusted")
    return folder


def inside(root: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    def enter() -> None:
        os.chroot(root)
        os.chdir("/")

    environment.setdefault("PATH", "/usr/bin:/bin")
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        preexec_fn=enter,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")


@needs_root
def test_the_plugin_runs_in_its_root_without_anything_of_the_host(root, layout):
    config, _ = layout.image(shared_facts.vendors()["intel"].plugin_image)
    environment = dict(pair.split("=", 1) for pair in config["Env"])
    done = inside(root, *config["Entrypoint"], "--help", **environment)
    assert done.returncode == 0, done.stderr
    assert "-shared-dev-num int" in done.stdout
    probe = "import grpc, yaml, google.protobuf, ssl, sys; print(grpc.__file__, sys.prefix)"
    done = inside(root, config["Entrypoint"][0], "-c", probe, **environment)
    assert done.stdout.split() == [f"/{runtime.LIBRARY}/site-packages/grpc/__init__.pyc", f"/{runtime.HOME}"], done.stderr


@needs_root
@pytest.mark.parametrize(
    "program", ["gpuops-device-plugin", "nvidia-device-plugin", "k8s-device-plugin", "intel_gpu_device_plugin"]
)
def test_programs_by_their_names(root, program):
    done = inside(root, f"/usr/bin/{program}", "--help")
    assert done.returncode == 0, done.stderr


@needs_root
def test_shell_and_tools_of_the_probe(root):
    done = inside(root, "/bin/sh", "-c", "for tool in cat ls sleep test env dd id stat; do command -v $tool || exit 1; done")
    assert done.returncode == 0, done.stdout


@needs_root
def test_pause_ends_at_once_when_told(root):
    (root / "dev").mkdir(exist_ok=True)
    if not (root / "dev/null").exists():
        os.mknod(root / "dev/null", 0o20666, os.makedev(1, 3))
    done = inside(root, "/bin/sh", "-c", "/pause & sleep 0.3; kill -TERM $!; wait $!; echo ended $?")
    assert done.stdout == "ended 0\n", done.stderr


def test_packing_is_independent_of_order():
    first = layer.pack({"a/b": Entry(b"x"), "a/c": Entry(link="b")})
    second = layer.pack({"a/c": Entry(link="b"), "a/b": Entry(b"x")})
    assert first == second


def test_a_dynamic_busybox_is_refused(monkeypatch, tmp_path):
    program = tmp_path / "busybox"
    program.write_bytes(b"\x7fELF /lib64/ld-linux-x86-64.so.2")
    monkeypatch.setattr(builder, "BUSYBOXES", (program, tmp_path / "nosuch"))
    with pytest.raises(LabError) as caught:
        images.input_digest()
    assert "busybox-static" in caught.value.line()


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot write images"):
        builder._write(tmp_path / "file" / "images.tar", b"{}", {})
