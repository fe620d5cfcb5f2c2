# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Official release files with their checksums, for machines that reach them.

The layout below one base, folder or URL, is that of the projects' own download places:
C(kubernetes/v1.36.3/bin/linux/amd64/kubelet) with C(kubelet.sha256), and archives with a checksum file beside them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import tarfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuops_lab.errors import LabError
from gpuops_lab.paths import cache, folder_made_whole
from gpuops_lab.programs.components import Component

_GITHUB = "https://github.com"
_PUBLIC = {
    "kubernetes": "https://dl.k8s.io",
    "etcd": f"{_GITHUB}/etcd-io/etcd/releases/download",
    "containerd": f"{_GITHUB}/containerd/containerd/releases/download",
    "cni": f"{_GITHUB}/containernetworking/plugins/releases/download",
}
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class ReleaseFile:
    """One file of a release, the file with its checksum, and the programs that it holds."""

    path: str  # below the component's base
    checksum_path: str
    programs: dict[str, str]  # program to member of the archive; one entry with "" for a plain program


def release_files(component: Component) -> list[ReleaseFile]:
    """The files that hold a component's programs."""
    version, names = component.version, [program.name for program in component.programs]
    architecture = _MACHINES.get(platform.machine(), platform.machine())
    if component.name == "kubernetes":
        folder = f"v{version}/bin/linux/{architecture}"
        return [ReleaseFile(f"{folder}/{name}", f"{folder}/{name}.sha256", {name: ""}) for name in names]
    if component.name == "etcd":
        stem = f"etcd-v{version}-linux-{architecture}"
        return [ReleaseFile(f"v{version}/{stem}.tar.gz", f"v{version}/SHA256SUMS", {"etcd": f"{stem}/etcd"})]
    if component.name == "containerd":
        path = f"v{version}/containerd-{version}-linux-{architecture}.tar.gz"
        return [ReleaseFile(path, f"{path}.sha256sum", {name: f"bin/{name}" for name in names})]
    path = f"v{version}/cni-plugins-linux-{architecture}-v{version}.tgz"
    return [ReleaseFile(path, f"{path}.sha256", {name: f"./{name}" for name in names})]


def fetch_all(components: list[Component], base: str, report: Callable[[str], None]) -> list[Path]:
    """Fetch what the cache lacks and return one folder of programs for each component.

    Args:
        components: What the lab is made of.
        base: Folder or URL with the layout of this module, "" for the projects' own places.
        report: Receives one progress line for each file.

    Raises:
        LabError: A file is missing or its checksum differs; nothing of it is kept.
    """
    folders = []
    origin = hashlib.sha256(base.encode()).hexdigest()[:8] if base else "official"
    for position, component in enumerate(components, start=1):
        target = cache() / "programs" / f"{component.name}-{component.version}-release-{origin}"
        if not target.is_dir():
            report(f"fetch {component.name} {component.version} ({position} of {len(components)})")
            with folder_made_whole(target) as work:
                for file in release_files(component):
                    _fetch(component, f"{base.rstrip('/')}/{component.name}" if base else _PUBLIC[component.name], file, work)
        folders.append(target)
    return folders


def _fetch(component: Component, base: str, file: ReleaseFile, work: Path) -> None:
    wanted = _checksum(_read(component, f"{base}/{file.checksum_path}").decode(), Path(file.path).name)
    if not wanted:
        raise LabError(f"cannot fetch {component.name}: {file.checksum_path} has no checksum of {file.path}")
    download = work / ".download"
    got = _download(component, f"{base}/{file.path}", download)
    if got != wanted:
        raise LabError(
            f"cannot use {base}/{file.path} of {component.name}: its SHA-256 is {got}, not {wanted}", "fetch it again"
        )
    for program, member in file.programs.items():
        target = work / program
        if member:
            _extract(component, download, member, target)
        else:
            os.replace(download, target)
        target.chmod(0o755)
    download.unlink(missing_ok=True)


def _checksum(text: str, name: str) -> str:
    """The SHA-256 of a file in the text of a checksum file: a bare sum, or lines of sum and name."""
    for line in text.splitlines():
        found = re.fullmatch(r"([0-9a-f]{64})(?:\s+\*?(\S+))?", line.strip())
        if found and (found[2] is None or Path(found[2]).name == name):
            return found[1]
    return ""


def _open(component: Component, address: str):  # type: ignore[no-untyped-def]
    try:
        if "://" in address:
            return urllib.request.urlopen(address, timeout=60)
        return open(address, "rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise LabError(
            f"cannot fetch {component.name} {component.version} from {address}: {reason}",
            "check --from, or build from source with GPUOPS_BINARIES=build",
        ) from error


def _read(component: Component, address: str) -> bytes:
    with _open(component, address) as stream:
        return bytes(stream.read(1 << 20))


def _download(component: Component, address: str, target: Path) -> str:
    digest = hashlib.sha256()
    with _open(component, address) as stream, target.open("wb") as out:
        while block := stream.read(1 << 20):
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def _extract(component: Component, archive: Path, member: str, target: Path) -> None:
    try:
        with tarfile.open(archive) as tar:
            stream = tar.extractfile(member)
            if stream is None:
                raise KeyError(member)
            with target.open("wb") as out:
                shutil.copyfileobj(stream, out)
    except (KeyError, tarfile.TarError) as error:
        raise LabError(f"cannot take {member} from the archive of {component.name} {component.version}: {error}") from error
