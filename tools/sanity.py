# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity` without containers and without Ansible's own download hosts.

ansible-test refuses a checkout that it reaches through a link, so the collection is copied, with kubernetes.core beside it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PROGRAMS = CHECKOUT / ".venv" / "bin"
WORK = CHECKOUT / "build" / "sanity"
# Not part of the collection's archive, and judged by this project's own linters.
LEFT_OUT = ("lab/", "tests/unit/", "tests/lab/", "tests/fixtures/", "tests/bench/", "molecule/", "tools/", ".ci/")

# ansible-test fetches a pip bootstrap script; this one does the same with what Python brings along.
_BOOTSTRAP = """\
import subprocess, sys
subprocess.run([sys.executable, "-m", "ensurepip"], check=True, stdout=subprocess.DEVNULL)
unknown = ("--no-setuptools", "--no-wheel")
arguments = [word for word in sys.argv[1:] if word not in unknown]
sys.exit(subprocess.run([sys.executable, "-m", "pip", "install", *arguments]).returncode)
"""


def check() -> bool:
    """Run all sanity tests on a copy of the work tree; whether all passed."""
    collection = _copy()
    home = WORK / "home"
    _write_bootstrap(home / ".ansible" / "test" / "cache")
    environment = {**os.environ, "HOME": str(home), "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "TERM": "dumb"}
    for name in ("ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH", "PYTHONPATH"):
        environment.pop(name, None)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    arguments = [str(PROGRAMS / "ansible-test"), "sanity", "--venv", "--python", version, "--color", "no"]
    done = subprocess.run(arguments, cwd=collection, env=environment, stdin=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def _copy() -> Path:
    tree = WORK / "ansible_collections"
    shutil.rmtree(tree, ignore_errors=True)
    collection = tree / "gpuops" / "k8s"
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listing.split("\0")):
        source = CHECKOUT / name
        if source.is_file() and not name.startswith(LEFT_OUT):
            target = collection / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    # ansible-test reads the work tree's file list from git where there is one.
    subprocess.run(["git", "init", "--quiet"], cwd=collection, check=True)
    subprocess.run(["git", "add", "--all"], cwd=collection, check=True)
    core = CHECKOUT / "build" / "collections" / "ansible_collections" / "kubernetes" / "core"
    shutil.copytree(core, tree / "kubernetes" / "core")
    return collection


def _write_bootstrap(cache: Path) -> None:
    """Write the script under the name of the pip version that this ansible-test asks for."""
    import ansible_test._internal.python_requirements as requirements

    source = Path(requirements.__file__).read_text(encoding="utf-8")
    cache.mkdir(parents=True, exist_ok=True)
    for version in sorted(set(re.findall(r"pip='([0-9.]+)'", source))):
        (cache / f"get_pip_{version.replace('.', '_')}.py").write_text(_BOOTSTRAP, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(0 if check() else 1)
