# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages and their signed repository, read back with Debian's own programs."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from gpuops_lab.packages import repository, toolkit
from gpuops_lab.packages.debian_package import DebianPackage, build


def output(*command: str | Path) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def package(tmp_path: Path) -> DebianPackage:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    files: dict[str, Path | str] = {"usr/bin/tool": program, "usr/share/doc/tool/README": "text\n"}
    return DebianPackage("tool", "1.2-3", "amd64", "a tool", files, ("libc6", "other (= 1.2-3)"))


def test_a_package_holds_what_it_was_given(package: DebianPackage, tmp_path: Path) -> None:
    path = build(package, tmp_path)
    assert path.name == "tool_1.2-3_amd64.deb"
    assert output("dpkg-deb", "--field", path, "Version") == "1.2-3\n"
    assert output("dpkg-deb", "--field", path, "Depends") == "libc6, other (= 1.2-3)\n"
    listed = output("dpkg-deb", "--contents", path)
    assert "-rwxr-xr-x root/root" in next(line for line in listed.splitlines() if line.endswith("./usr/bin/tool"))
    assert "-rw-r--r-- root/root" in next(line for line in listed.splitlines() if line.endswith("README"))


def test_the_same_input_gives_the_same_package(package: DebianPackage, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    digests = set()
    for folder in folders:
        folder.mkdir()
        digests.add(hashlib.sha256(build(package, folder).read_bytes()).hexdigest())
    assert len(digests) == 1


def test_the_repository_is_signed_by_the_key_beside_it(package: DebianPackage, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    repository.write(folder, [package])
    keyring = tmp_path / "key.gpg"
    subprocess.run(["gpg", "--dearmor", "--output", keyring, folder / repository.KEY_FILE], check=True, capture_output=True)
    subprocess.run(["gpgv", "--keyring", keyring, folder / "InRelease"], check=True, capture_output=True)
    index = (folder / "Packages").read_bytes()
    assert f" {hashlib.sha256(index).hexdigest()} {len(index)} Packages" in (folder / "InRelease").read_text()
    content = (folder / package.file_name).read_bytes()
    assert f"SHA256: {hashlib.sha256(content).hexdigest()}\n" in index.decode()
    changed = (folder / "InRelease").read_text().replace("gpuops-lab", "someone-else")
    (folder / "InRelease").write_text(changed)
    done = subprocess.run(["gpgv", "--keyring", keyring, folder / "InRelease"], check=False, capture_output=True)
    assert done.returncode != 0


def test_the_four_packages_of_the_toolkit_hang_together(tmp_path: Path) -> None:
    programs = {name: tmp_path / name for name in ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime")}
    packages = {package.name: package for package in toolkit.packages(programs)}
    assert set(packages) == {
        "nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1"
    }  # fmt: skip
    assert {package.version for package in packages.values()} == {"1.20.2-1"}
    assert set(packages["nvidia-container-toolkit-base"].files) == {f"usr/bin/{name}" for name in programs}
    own = {f"{name} (= 1.20.2-1)" for name in packages}
    needed = {dependency for package in packages.values() for dependency in package.depends}
    assert needed - {"libc6"} == own - {"nvidia-container-toolkit (= 1.20.2-1)"}
