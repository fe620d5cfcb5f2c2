# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A flat, signed apt repository out of a folder of packages."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from gpuops_lab.command import run
from gpuops_lab.packages.debian_package import DebianPackage, build

KEY_FILE = "key.asc"
_DATE = "Tue, 14 Nov 2023 22:13:20 UTC"  # before any clock that reads it


def write(folder: Path, packages: list[DebianPackage]) -> None:
    """Pack the packages into a folder, with index, signed release and the public key that signed it.

    Raises:
        LabError: dpkg-deb or gpg is missing or failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entries = [_entry(package, build(package, folder)) for package in packages]
    index = "\n".join(entries)
    (folder / "Packages").write_text(index, encoding="utf-8")
    digest = hashlib.sha256(index.encode()).hexdigest()
    release = f"Origin: gpuops-lab\nLabel: gpuops-lab\nDate: {_DATE}\nSHA256:\n {digest} {len(index.encode())} Packages\n"
    (folder / "Release").write_text(release, encoding="utf-8")
    _sign(folder)


def _entry(package: DebianPackage, path: Path) -> str:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return f"{package.control()}Filename: ./{path.name}\nSize: {len(content)}\nSHA256: {digest}\n"


def _sign(folder: Path) -> None:
    """Sign with a key of its own that is thrown away, so that nobody can sign anything else with it."""
    # The path of gpg's sockets must be short.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="gpg") as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--no-tty"]
        name = "gpuops-lab packages <gpuops@example.org>"
        try:
            _gpg([*gpg, "--passphrase", "", "--quick-gen-key", name, "ed25519", "sign", "never"])
            _gpg([*gpg, "--armor", "--output", str(folder / KEY_FILE), "--export"])
            _gpg([*gpg, "--clearsign", "--output", str(folder / "InRelease"), str(folder / "Release")])
        finally:
            run(["gpgconf", "--homedir", home, "--kill", "all"], what="end gpg's agent", timeout=30)


def _gpg(command: list[str]) -> None:
    run(command, what="sign the lab's packages", hint="install gnupg", timeout=120)
