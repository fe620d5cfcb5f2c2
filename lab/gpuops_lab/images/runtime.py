# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python that runs the simulated plugin: this interpreter with its library, its shared objects and three packages."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpuops_lab.errors import LabError
from gpuops_lab.images.layer import Entry

HOME = "opt/gpuops"
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
LIBRARY = f"{HOME}/lib/python{VERSION}"
DISTRIBUTIONS = ("grpcio", "protobuf", "PyYAML", "typing_extensions")
_PACKAGES = ("grpc", "google.protobuf", "google._upb", "yaml", "typing_extensions")
_WITHOUT = re.compile(
    r"(^|/)(__pycache__|test|tests|idlelib|ensurepip|lib2to3|tkinter|turtledemo|pydoc_data|site-packages|dist-packages|venv"
    r"|config-[^/]*)(/|$)|(^|/)(_test|_ctypes_test|_xxtest|_tkinter|turtle|xxlimited)[^/]*$|\.(pyi|pyx|pxd|a|exe)$"
)

# Templates of other Python versions lie among the library's modules; what does not compile is left out.
_COMPILER = """
import json, py_compile, sys
for name, source, target in json.load(sys.stdin):
    try:
        py_compile.compile(source, cfile=target, dfile="/" + name, doraise=True, quiet=1,
                           invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    except (py_compile.PyCompileError, UnicodeError, ValueError):
        pass
"""


def inputs() -> str:
    """What decides the content of this part, apart from files of the checkout."""
    versions = [f"{name}=={importlib.metadata.version(name)}" for name in DISTRIBUTIONS if _is_installed(name)]
    stripped = "stripped" if shutil.which("strip") else "whole"
    return " ".join((sys.version.replace("\n", " "), sysconfig.get_platform(), stripped, *versions))


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def tree() -> dict[str, Entry]:
    """All files of the interpreter below /opt/gpuops, its loader at its own path, compiled modules included.

    Raises:
        LabError: A package or a program is missing.
    """
    files: dict[str, Path] = {f"{HOME}/bin/python{VERSION}": Path(sys.executable).resolve()}
    for scheme in ("stdlib", "platstdlib"):
        root = Path(sysconfig.get_path(scheme))
        files.update({f"{LIBRARY}/{name}": path for name, path in _walk(root)})
    for package in _PACKAGES:
        files.update(_package(package))
    shared = _shared_objects([path for path in files.values() if _is_program(path)])
    programs = {name: path for name, path in files.items() if _is_program(path)} | shared
    modules = {name: path for name, path in files.items() if name.endswith(".py")}
    entries = {name: Entry(path) for name, path in files.items() if name not in modules}
    entries.update(_stripped(programs))
    entries[f"{HOME}/bin/python3"] = Entry(link=f"python{VERSION}")
    # Byte code in the place of the source: half the size, and a start writes nothing.
    entries.update({f"{name}c": entry for name, entry in compiled(modules).items()})
    return entries


def _walk(root: Path) -> Iterator[tuple[str, Path]]:
    for folder, names, files in os.walk(root):
        relative = os.path.relpath(folder, root)
        prefix = "" if relative == "." else f"{relative}/"
        names[:] = [name for name in names if not _WITHOUT.search(f"{prefix}{name}")]
        for name in files:
            path = Path(folder, name)
            if not _WITHOUT.search(f"{prefix}{name}") and path.is_file():
                yield f"{prefix}{name}", path


def _package(name: str) -> dict[str, Path]:
    """Files of an installed package or module, as they lie below site-packages."""
    specification = importlib.util.find_spec(name)
    if specification is None:
        if name == "typing_extensions":
            return {}
        raise LabError(f"Python package {name} is not installed", "run `make setup`")
    place = f"{LIBRARY}/site-packages/{name.replace('.', '/')}"
    if not specification.submodule_search_locations:
        return {f"{place}.py": Path(str(specification.origin))}
    root = Path(next(iter(specification.submodule_search_locations)))
    return {f"{place}/{relative}": path for relative, path in _walk(root)}


def _is_program(path: Path) -> bool:
    return path.suffix == ".so" or ".so." in path.name or path.name.startswith("python3")


def _shared_objects(programs: list[Path]) -> dict[str, Path]:
    """Shared objects that programs need, by their places in the image; the loader keeps its absolute path."""
    try:
        output = subprocess.run(
            ["ldd", *map(str, programs)], capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
        ).stdout
    except OSError as error:
        raise LabError(f"cannot run ldd: {error.strerror}", "install libc-bin") from error
    found: dict[str, Path] = {}
    for line in output.splitlines():
        named = re.match(r"\s+(\S+) => (/\S+) \(0x", line)
        loader = re.match(r"\s+(/\S+) \(0x", line)
        missing = re.match(r"\s+(\S+) => not found", line)
        if missing:
            raise LabError(f"shared object {missing[1]}, which the interpreter needs, is not on this machine")
        if named:
            found[f"{HOME}/lib/{named[1]}"] = Path(named[2]).resolve()
        elif loader:
            found[loader[1].lstrip("/")] = Path(loader[1]).resolve()
    return found


def compiled(sources: dict[str, Path]) -> dict[str, Entry]:
    """Byte code for modules, by the names of their sources, never checked against them.

    A process of its own compiles them, because what an interpreter compiled earlier shows in later byte code.

    Raises:
        LabError: The compiler does not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(name, str(path), f"{folder}/{number}") for number, (name, path) in enumerate(sorted(sources.items()))]
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _COMPILER],
            input=json.dumps(jobs),
            text=True,
            capture_output=True,
            check=False,
            env={"PYTHONHASHSEED": "0", "PATH": os.defpath},
        )
        if done.returncode:
            raise LabError(f"compiling the plugin's Python modules failed: {done.stderr.strip().splitlines()[-1:]}")
        return {name: Entry(Path(target).read_bytes()) for name, _, target in jobs if os.path.exists(target)}


def beside(name: str) -> str:
    """Where a module's byte code lies while its source is there too."""
    head, _, tail = name.rpartition("/")
    return f"{head}/__pycache__/{tail[:-3]}.{sys.implementation.cache_tag}.pyc"


def _stripped(programs: dict[str, Path]) -> dict[str, Entry]:
    """Programs and shared objects without their debugging symbols, where C(strip) is there."""
    strip = shutil.which("strip")
    if strip is None:
        return {name: Entry(path, 0o755) for name, path in programs.items()}
    entries = {}
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "program"
        for name, path in programs.items():
            done = subprocess.run([strip, "--strip-debug", "-o", target, path], capture_output=True, check=False)
            entries[name] = Entry(path if done.returncode else target.read_bytes(), 0o755)
    return entries
