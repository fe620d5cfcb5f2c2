# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packs the images: one archive in OCI layout that containerd imports under all their names."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuops_lab import shared_facts
from gpuops_lab.errors import LabError
from gpuops_lab.images import runtime
from gpuops_lab.images.layer import Entry, digest, pack
from gpuops_lab.paths import LAB_FOLDER, cache

PAUSE, PROBE = "gpuops.lab/pause:1", "gpuops.lab/probe:1"
BUSYBOXES = (Path("/bin/busybox"), Path("/usr/bin/busybox"))
FORMAT = "1"  # counts up when the same inputs make other bytes
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PAUSE_SCRIPT = "#!/bin/sh\ntrap 'kill $! 2>/dev/null; exit 0' TERM INT\nwhile :; do sleep 86400 & wait $!; done\n"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PYTHON_ENVIRONMENT = (
    f"LD_LIBRARY_PATH=/{runtime.HOME}/lib",
    f"PYTHONHOME=/{runtime.HOME}",
    f"PYTHONPATH=/{runtime.HOME}/lab",
    "PYTHONDONTWRITEBYTECODE=1",
    "PYTHONUNBUFFERED=1",
)
_OCI = "application/vnd.oci.image"


@dataclass(frozen=True)
class ImageArchive:
    """A packed archive: its digest names the content, so the same inputs give the same."""

    path: Path
    digest: str
    names: tuple[str, ...]


def default_path() -> Path:
    """Where the archive of the present inputs lies."""
    return cache() / "images" / f"images-{input_digest()}.tar"


def input_digest() -> str:
    """Name of what the archive is made of: 16 hex digits.

    Raises:
        LabError: An input is missing.
    """
    state = hashlib.sha256()
    facts = [(vendor.name, vendor.plugin_image) for vendor in shared_facts.vendors().values()]
    state.update(repr((FORMAT, platform.machine(), runtime.inputs(), facts)).encode())
    state.update(_busybox().read_bytes())
    for name, path in sorted(_sources().items()):
        state.update(f"{name}\n".encode() + path.read_bytes())
    return state.hexdigest()[:16]


def build(target: Path) -> ImageArchive:
    """Pack the images into a file, or take the file that is there.

    Raises:
        LabError: An input is missing or the file cannot be written.
    """
    if target.is_file():
        try:
            return _read(target)
        except (tarfile.TarError, KeyError, ValueError, OSError):
            pass  # half a file from an interrupted copy
    images, blobs = _images()
    index = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.index.v1+json",
            "manifests": [
                {
                    "mediaType": f"{_OCI}.manifest.v1+json",
                    "digest": manifest,
                    "size": len(blobs[manifest]),
                    "annotations": {
                        "io.containerd.image.name": name,
                        "org.opencontainers.image.ref.name": name.split(":")[-1],
                    },
                    "platform": {"os": "linux", "architecture": _architecture()},
                }
                for name, manifest in images.items()
            ],
        }
    )
    _write(target, index, blobs)
    return ImageArchive(target, digest(index), tuple(images))


def _read(path: Path) -> ImageArchive:
    with tarfile.open(path) as archive:
        member = archive.extractfile("index.json")
        index = member.read() if member else b""
    names = tuple(entry["annotations"]["io.containerd.image.name"] for entry in json.loads(index)["manifests"])
    return ImageArchive(path, digest(index), names)


def _write(target: Path, index: bytes, blobs: dict[str, bytes]) -> None:
    files = {"index.json": index, "oci-layout": _json({"imageLayoutVersion": "1.0.0"})}
    files.update({f"blobs/{name.replace(':', '/')}": data for name, data in sorted(blobs.items())})
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with (
                os.fdopen(handle, "wb") as stream,
                tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive,
            ):
                for name, data in files.items():
                    info = tarfile.TarInfo(name)
                    info.size, info.mode = len(data), 0o644
                    archive.addfile(info, io.BytesIO(data))
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise LabError(f"cannot write images to {target}: {error.strerror}") from error


def _images() -> tuple[dict[str, str], dict[str, bytes]]:
    """Name of each image to the digest of its manifest, and all blobs by their digests."""
    base = pack(_base_tree(), ("dev", "etc", "proc", "run", "sys", "tmp", "var"))
    layers = {"base": base, "python": pack(runtime.tree()), "plugin": pack(_plugin_tree())}
    blobs: dict[str, bytes] = {}
    images = {
        PAUSE: _image(blobs, [base], {"Env": [_PATH], "Entrypoint": ["/pause"], "StopSignal": "SIGTERM"}),
        PROBE: _image(blobs, [base], {"Env": [_PATH], "Cmd": ["/bin/sh"]}),
    }
    for vendor in shared_facts.vendors().values():
        command = [f"/{runtime.HOME}/bin/python3", "-m", "gpuops_lab.plugin", "--vendor", vendor.name]
        config = {"Env": [_PATH, *_PYTHON_ENVIRONMENT], "Entrypoint": command, "StopSignal": "SIGTERM"}
        images[vendor.plugin_image] = _image(blobs, list(layers.values()), config)
    return images, blobs


def _image(blobs: dict[str, bytes], layers: list[bytes], config: dict[str, Any]) -> str:
    """Add one image's blobs and return the digest of its manifest."""
    described = []
    for layer in layers:
        blobs[digest(layer)] = layer
        described.append({"mediaType": f"{_OCI}.layer.v1.tar", "digest": digest(layer), "size": len(layer)})
    document = _json(
        {
            "created": "1970-01-01T00:00:00Z",
            "architecture": _architecture(),
            "os": "linux",
            "config": {"Labels": {"org.opencontainers.image.title": "gpuops.k8s lab"}, **config},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": {"mediaType": f"{_OCI}.config.v1+json", "digest": digest(document), "size": len(document)},
            "layers": described,
        }
    )
    blobs[digest(document)], blobs[digest(manifest)] = document, manifest
    return digest(manifest)


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _busybox() -> Path:
    for path in BUSYBOXES:
        # A dynamically linked busybox names its loader; alone in an image it could not start.
        if path.is_file() and b"/ld-linux" not in path.read_bytes():
            return path
    raise LabError("no statically linked busybox at /bin/busybox", "install the package busybox-static")


def _base_tree() -> dict[str, Entry]:
    """busybox with a link for each of its programs, and the pause script."""
    busybox = _busybox()
    listed = subprocess.run([str(busybox), "--list"], capture_output=True, text=True, check=True).stdout.split()
    tree = {f"bin/{name}": Entry(link="busybox") for name in listed if name not in ("busybox", "init", "linuxrc")}
    tree["bin/busybox"] = Entry(busybox, 0o755)
    tree["pause"] = Entry(_PAUSE_SCRIPT.encode(), 0o755)
    tree["usr/bin/env"] = Entry(link="../../bin/busybox")
    tree["etc/passwd"] = Entry(b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
    tree["etc/group"] = Entry(b"root:x:0:\nnogroup:x:65534:\n")
    return tree


def _sources() -> dict[str, Path]:
    """The checkout's files that the plugin consists of, by their places below /opt/gpuops/lab."""
    package = LAB_FOLDER / "gpuops_lab"
    files = [package / "__init__.py", package / "errors.py", *(package / "plugin").rglob("*.py")]
    return {str(path.relative_to(LAB_FOLDER)): path for path in files}


def _plugin_tree() -> dict[str, Entry]:
    sources = {f"{runtime.HOME}/lab/{name}": path for name, path in _sources().items()}
    tree = {name: Entry(path) for name, path in sources.items()}
    tree.update({runtime.beside(name): entry for name, entry in runtime.compiled(sources).items()})
    exports = " ".join(f"{pair.split('=')[0]}='{pair.split('=')[1]}'" for pair in _PYTHON_ENVIRONMENT)
    run = f"/{runtime.HOME}/bin/python3 -m gpuops_lab.plugin"
    tree["usr/bin/gpuops-device-plugin"] = Entry(f'#!/bin/sh\nexport {exports}\nexec {run} "$@"\n'.encode(), 0o755)
    # The names by which manifests of the vendors call their programs.
    programs = {"nvidia": "nvidia-device-plugin", "amd": "k8s-device-plugin", "intel": "intel_gpu_device_plugin"}
    for vendor, name in programs.items():
        script = f'#!/bin/sh\nexec /usr/bin/gpuops-device-plugin --vendor {vendor} "$@"\n'
        tree[f"usr/bin/{name}"] = Entry(script.encode(), 0o755)
    return tree
