# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command `gpuops-lab`. Exit codes: 0 done, 1 failed with one clear line, 2 wrong use."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable

from gpuops_lab import contract, images, lab, state, topology
from gpuops_lab.errors import LabError
from gpuops_lab.fault import commands as fault_commands
from gpuops_lab.paths import check_name
from gpuops_lab.system_tree import SUITES

DEFAULT_NAME = "demo"
Handler = Callable[[argparse.Namespace], int]


def report(line: str) -> None:
    """Print one progress line at once."""
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    remote: list[str] = []
    # Options may follow the node; all after "--" belongs to the command there.
    if words[:1] == ["ssh"] and "--" in words:
        position = words.index("--")
        words, remote = words[:position], words[position + 1 :]
    chosen = _parser().parse_args(words)
    chosen.remote = remote
    try:
        handler: Handler = chosen.handler
        return handler(chosen)
    except LabError as error:
        print(f"gpuops-lab: {error.line()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gpuops-lab: interrupted", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuops-lab", description="A real Kubernetes with simulated GPUs on this machine.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_life(commands)
    build = _add(commands, "build", "make the programs and root trees, without starting a lab", _build)
    build.add_argument("--from", dest="source", default="", metavar="DIR|URL", help="release files instead of a build")
    _add(commands, "images", "pack the lab's images and print their names and digests", _images)
    ssh = _add(commands, "ssh", "open a shell on a node, or run a command there", _ssh)
    ssh.add_argument("--name", default=DEFAULT_NAME)
    ssh.add_argument("node", metavar="NODE")
    ssh.usage = "gpuops-lab ssh [--name NAME] NODE [-- CMD ...]"
    fault_commands.add_parser(commands, DEFAULT_NAME)
    contract_parser = _add(commands, "contract", "record how a device plugin answers a kubelet", contract.run)
    contract.add_arguments(contract_parser)
    return parser


def _add(commands, name: str, text: str, handler: Handler) -> argparse.ArgumentParser:  # type: ignore[no-untyped-def]
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(handler=handler)
    return parser


def _add_life(commands) -> None:  # type: ignore[no-untyped-def]
    up = _add(commands, "up", "start a lab; if it runs already, nothing happens", _up)
    up.add_argument("topology", metavar="TOPOLOGY", help=f"one of {', '.join(topology.names())}, or a .yml file")
    up.add_argument("--driver", choices=("process",), default="process", help="how nodes run")
    up.add_argument("--from", dest="source", default="", metavar="DIR|URL", help="release files instead of a build")
    down = _add(commands, "down", "remove a lab without a trace", _down)
    status = _add(commands, "status", "exit 0 only while the lab runs", _status)
    status.add_argument("--json", action="store_true", help="print the state as JSON")
    for parser in (up, down, status):
        parser.add_argument("--name", default=DEFAULT_NAME, help=f"name of the lab (default {DEFAULT_NAME})")


def _up(chosen: argparse.Namespace) -> int:
    document = lab.up(chosen.name, topology.load(chosen.topology), report, chosen.source)
    print(document["kubeconfig"])
    return 0


def _down(chosen: argparse.Namespace) -> int:
    lab.down(chosen.name, report)
    return 0


def _status(chosen: argparse.Namespace) -> int:
    document = lab.status(chosen.name)
    if chosen.json:
        print(json.dumps(document, indent=1))
    elif not document["running"]:
        print(f"lab {chosen.name} is not running")
    else:
        print(f"lab {chosen.name}: Kubernetes {document['kubernetes']}, topology {document['topology']}")
        for node in document["nodes"]:
            print(f"  {node['name']:16} {node['address']:14} {node['hardware']:22} {node['system']}")
    return 0 if document["running"] else 1


def _build(chosen: argparse.Namespace) -> int:
    lab.check_host()
    parts = lab.prepare(set(SUITES), report, chosen.source)
    for name, path in sorted(parts.programs.items()):
        print(f"{name:26} {path}")
    return 0


def _images(_: argparse.Namespace) -> int:
    archive = images.build(images.default_path())
    for name in archive.names:
        print(name)
    print(archive.digest)
    return 0


def _ssh(chosen: argparse.Namespace) -> int:
    document = lab.status(check_name(chosen.name))
    if not document["running"]:
        raise LabError(f"lab {chosen.name} is not running", "start it with `gpuops-lab up TOPOLOGY`")
    addresses = {node["name"]: node["address"] for node in document["nodes"]}
    if chosen.node not in addresses:
        raise LabError(f"lab {chosen.name} has no node {chosen.node!r}", f"it has: {', '.join(addresses)}")
    command = ["ssh", *state.ssh_arguments(chosen.name), f"root@{addresses[chosen.node]}", *chosen.remote]
    os.execvp("ssh", command)


if __name__ == "__main__":
    sys.exit(main())
