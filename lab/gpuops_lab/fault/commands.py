# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands `gpuops-lab fault apply|clear|list`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gpuops_lab import lab, place
from gpuops_lab.errors import LabError
from gpuops_lab.fault import kinds
from gpuops_lab.fault.kinds import Fault, Target


def add_parser(commands: Any, default_name: str) -> None:
    """Add `fault` and its three commands to the command line."""
    text = "break something on a node, and mend it again"
    actions = commands.add_parser("fault", help=text, description=text).add_subparsers(required=True, metavar="ACTION")
    apply = actions.add_parser("apply", help="break something on a node")
    apply.add_argument("node", metavar="NODE")
    apply.add_argument("kind", metavar="KIND", help="see `gpuops-lab fault list`")
    apply.add_argument("--resource", default="*", metavar="R", help="extended resource whose plugin is meant (default: all)")
    apply.add_argument("--device", default="", metavar="D", help="device id or device node (default: the last)")
    apply.set_defaults(handler=_apply)
    clear = actions.add_parser("clear", help="mend everything on a node, or on all nodes")
    clear.add_argument("node", metavar="NODE", nargs="?", default="")
    clear.set_defaults(handler=_clear)
    listing = actions.add_parser("list", help="kinds, and what is broken now")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(handler=_list)
    for parser in (apply, clear, listing):
        parser.add_argument("--name", default=default_name, help=f"name of the lab (default {default_name})")


def _targets(name: str, node: str = "") -> list[Target]:
    document, taken = lab.status(name), place.find(name)
    if taken is None or not document["running"]:
        raise LabError(f"lab {name} is not running", "start it with `gpuops-lab up TOPOLOGY`")
    known = [entry["name"] for entry in document["nodes"]]
    if node and node not in known:
        raise LabError(f"lab {name} has no node {node!r}", f"it has: {', '.join(known)}")
    return [Target(taken, entry) for entry in known if node in ("", entry)]


def _apply(chosen: argparse.Namespace) -> int:
    [target] = _targets(chosen.name, chosen.node)
    kinds.apply(target, Fault(chosen.kind, chosen.resource, chosen.device))
    print(f"{chosen.node}: {chosen.kind} applied")
    return 0


def _clear(chosen: argparse.Namespace) -> int:
    for target in _targets(chosen.name, chosen.node):
        count = kinds.clear(target)
        if count:
            print(f"{target.node}: {count} fault{'s' if count > 1 else ''} cleared")
    return 0


def _list(chosen: argparse.Namespace) -> int:
    running = lab.status(chosen.name)["running"]
    applied = (
        {target.node: [vars(f) for f in kinds.read_applied(target)] for target in _targets(chosen.name)} if running else {}
    )
    if chosen.json:
        print(json.dumps({"kinds": kinds.descriptions(), "applied": applied}, indent=1))
        return 0
    for kind, description in kinds.descriptions().items():
        print(f"{kind:20} {description}")
    for node, faults in applied.items():
        for fault in faults:
            print(f"applied on {node}: {fault['kind']} {fault['resource']} {fault['device']}".rstrip())
    return 0
