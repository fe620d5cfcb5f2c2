# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab tests share: a lab as its users drive it, and what the host shows of labs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SLOW_MACHINE = 300  # seconds after which a command on a busy machine has hung
CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent


@dataclass
class PlaybookRun:
    """One ansible-playbook run: exit code, whole output, and the recap by host."""

    code: int
    output: str
    recap: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        """Changed tasks over all hosts."""
        assert self.recap, f"no recap in:\n{self.output[-3000:]}"
        return sum(host["changed"] for host in self.recap.values())


@dataclass
class Lab:
    """A lab by name, driven through its command line."""

    name: str
    topology: str
    first_run: PlaybookRun | None = None

    @property
    def folder(self) -> Path:
        """Where kubeconfig, inventory and state are."""
        return CHECKOUT / "build" / "lab" / self.name

    @property
    def output(self) -> Path:
        """Where evidence is written."""
        return CHECKOUT / "build" / self.name

    def command(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run gpuops-lab with this lab's name."""
        before_command = words.index("--") if "--" in words else len(words)
        arguments = [*words[:before_command], *([] if "--name" in words else ["--name", self.name]), *words[before_command:]]
        done = subprocess.run(
            [PROGRAMS / "gpuops-lab", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        assert not check or done.returncode == 0, f"gpuops-lab {arguments}: {done.stderr[-2000:]}"
        return done

    @contextmanager
    def running(self) -> Iterator[Lab]:
        """The lab up, each node booted once, and down again whatever happens."""
        try:
            self.command("up", self.topology)
            for log in (self.folder / "logs").glob("*.log"):
                assert "node ended:" not in log.read_text(encoding="utf-8", errors="replace"), f"{log.stem} booted twice"
            yield self
        finally:
            self.command("down")

    def inside(self, node: str, command: str) -> str:
        """Run a shell line on a node over SSH."""
        done = subprocess.run(
            [PROGRAMS / "gpuops-lab", "ssh", "--name", self.name, node, "--", command],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=SLOW_MACHINE,
        )  # fmt: skip
        assert done.returncode == 0, f"{node}: {command}: {done.stderr[-1000:]}"
        return done.stdout

    def playbook(self, name: str, *arguments: str, inventory: Path | None = None) -> PlaybookRun:
        """Run one of the collection's playbooks on the lab's inventory."""
        shutil.rmtree(self.output, ignore_errors=True)
        chosen = str(inventory or self.folder / "inventory.yml")
        command = [PROGRAMS / "ansible-playbook", "-i", chosen, f"gpuops.k8s.{name}", *arguments]
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=ansible_environment(),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return PlaybookRun(done.returncode, done.stdout + done.stderr, read_recap(done.stdout))

    def evidence(self) -> dict[str, Any]:
        """The evidence of the last run."""
        document: dict[str, Any] = json.loads((self.output / "evidence.json").read_text(encoding="utf-8"))
        return document

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl of the lab's own version against it."""
        state = json.loads((self.folder / "state.json").read_text(encoding="utf-8"))
        done = subprocess.run(
            [state["kubectl"], "--kubeconfig", str(self.folder / "kubeconfig"), *words],
            capture_output=True, text=True, input=stdin, check=False, timeout=SLOW_MACHINE,
        )  # fmt: skip
        assert done.returncode == 0, f"kubectl {words}: {done.stderr[-1000:]}"
        return done.stdout


def ansible_environment() -> dict[str, str]:
    """A user's environment with nothing but this checkout's settings."""
    configuration = str(CHECKOUT / "ansible.cfg")
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "ANSIBLE_CONFIG": configuration}


def read_recap(output: str) -> dict[str, dict[str, int]]:
    """Host to counters from the last lines of a playbook run."""
    lines = output.partition("PLAY RECAP")[2].splitlines()
    recap = {}
    for line in lines:
        host, separator, counters = line.partition(" : ")
        if separator:
            recap[host.strip()] = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counters)}
    return recap


def failed_ids(evidence: dict[str, Any]) -> set[str]:
    """Ids of the checks that failed."""
    return {check["id"] for check in evidence["checks"] if check["status"] == "fail"}


def left_out(evidence: dict[str, Any]) -> list[str]:
    """Every skipped check with its reason: why a run that should be red may be green."""
    return [f"{check['id']} {check['node']}: {check['reason']}" for check in evidence["checks"] if check["status"] == "skip"]


def process_tree(pid: int) -> list[int]:
    """A process and all its descendants: Ansible's workers leave their parent's process group."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    tree = [pid]
    for member in tree:
        tree += children.get(member, [])
    return tree


def host_traces(name: str) -> dict[str, list[str]]:
    """Everything on the host that belongs to a lab of this name: the same lists before and after, or something was left."""
    links = [entry["ifname"] for entry in json.loads(_read("ip", "-json", "link", "show"))]
    processes = []
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            continue
        if f"/gpuops/{name}/" in text or text.rstrip().endswith(f"/gpuops/{name}"):
            processes.append(path.parent.name)
    return {
        "links": sorted(link for link in links if link.startswith("gpuops")),
        "namespaces": sorted(path.name for path in Path("/run/netns").glob("gpuops-*")),
        "tables": sorted(line for line in _read("nft", "list", "tables").splitlines() if "gpuops" in line),
        "groups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob(f"**/gpuops/{name}")),
        "mounts": sorted(
            line for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines() if f"gpuops/{name}" in line
        ),
        "folders": sorted(str(path) for path in Path("/var/lib/gpuops").glob(name)),
        "processes": sorted(processes),
        "settings": [
            Path("/proc/sys", name).read_text(encoding="utf-8").strip()
            for name in ("net/ipv4/ip_forward", "fs/inotify/max_user_instances")
        ],
    }


def _read(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
