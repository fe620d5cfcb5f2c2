# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Release files from a server with the official layout: taken when the checksum holds, never otherwise."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpuops_lab.errors import LabError
from gpuops_lab.programs import components, release, source

ALL = components.components(components.DEFAULT_KUBERNETES)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Keep the test's output readable."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUOPS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def release_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "releases"
    for component in ALL:
        for file in release.release_files(component):
            content = _archive(file.programs) if all(file.programs.values()) else f"{next(iter(file.programs))}\n".encode()
            target = folder / component.name / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            checksum = hashlib.sha256(content).hexdigest()
            lines = f"{'0' * 64}  other-file\n{checksum}  {target.name}\n" if "SUMS" in file.checksum_path else checksum
            (folder / component.name / file.checksum_path).write_text(lines, encoding="utf-8")
    return folder


def _archive(programs: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for program, member in programs.items():
            information = tarfile.TarInfo(member)
            information.size = len(program) + 1
            tar.addfile(information, io.BytesIO(f"{program}\n".encode()))
    return buffer.getvalue()


@pytest.fixture
def server(release_folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(release_folder))) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def ignore(_: str) -> None:
    """Take no notice of progress."""


def test_every_program_comes_from_the_server(server: str) -> None:
    programs = source.programs(ALL, ignore, server)
    assert set(programs) >= {"kube-apiserver", "kubelet", "kubectl", "etcd", "containerd", "ctr", "bridge", "host-local"}
    for name, path in programs.items():
        assert path.read_text(encoding="utf-8") == f"{name}\n"
        assert path.stat().st_mode & 0o111


def test_a_folder_serves_as_well_and_a_second_run_reads_the_cache(release_folder: Path) -> None:
    first = source.programs(ALL, ignore, str(release_folder))
    lines: list[str] = []
    assert source.programs(ALL, lines.append, str(release_folder)) == first
    assert lines == []


def test_the_environment_chooses_the_official_places(monkeypatch: pytest.MonkeyPatch, release_folder: Path) -> None:
    monkeypatch.setenv("GPUOPS_BINARIES", "release")
    monkeypatch.setattr(release, "_PUBLIC", {component.name: str(release_folder / component.name) for component in ALL})
    assert source.programs(ALL, ignore)["etcd"].read_text(encoding="utf-8") == "etcd\n"


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(release_folder: Path, own_cache: Path) -> None:
    kubelet = next(f for f in release.release_files(ALL[-1]) if "kubelet" in f.programs)
    (release_folder / "kubernetes" / kubelet.path).write_text("something else\n", encoding="utf-8")
    with pytest.raises(LabError, match=r"kubelet.*SHA-256"):
        source.programs(ALL, ignore, str(release_folder))
    assert not list((own_cache / "programs").glob("*kubernetes*"))


def test_a_missing_file_names_component_and_address(release_folder: Path, own_cache: Path) -> None:
    etcd = release.release_files(ALL[0])[0]
    (release_folder / "etcd" / etcd.path).unlink()
    with pytest.raises(LabError, match=r"cannot fetch etcd .*No such file"):
        source.programs(ALL, ignore, str(release_folder))
    assert not list((own_cache / "programs").glob("*etcd*"))


def test_a_server_that_is_not_there_is_one_line() -> None:
    with pytest.raises(LabError, match=r"cannot fetch etcd .*refused"):
        source.programs(ALL, ignore, "http://127.0.0.1:9")


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(LabError, match="unknown source"):
        source.programs(ALL, ignore, "releases")
