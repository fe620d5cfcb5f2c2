# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Topologies: which nodes a lab has, with which hardware and which system."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpuops_lab.errors import LabError
from gpuops_lab.paths import LAB_FOLDER
from gpuops_lab.system_tree import SUITES

FOLDER = LAB_FOLDER / "topologies"
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?")
_NODE_KEYS = {"name", "hardware", "system", "hostname", "labels", "taints"}
MAXIMUM_NODES = 200


@dataclass(frozen=True)
class NodeSpec:
    """One node of a topology."""

    name: str
    hardware: str
    system: str = "debian-12"
    hostname: str = ""  # the node's own host name where it is not its Kubernetes name
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[str, ...] = ()  # key=value:Effect, as the kubelet takes them


@dataclass(frozen=True)
class Topology:
    """A named set of nodes."""

    name: str
    nodes: tuple[NodeSpec, ...]


def names() -> list[str]:
    """Names of the topologies that come with the lab."""
    return sorted(path.stem for path in FOLDER.glob("*.yml"))


def load(name_or_path: str) -> Topology:
    """Read a topology by its name, or from a file where the name ends in C(.yml).

    Raises:
        LabError: Unknown, unreadable or not a topology.
    """
    path = Path(name_or_path) if name_or_path.endswith((".yml", ".yaml")) else FOLDER / f"{name_or_path}.yml"
    if not path.is_file():
        near = difflib.get_close_matches(name_or_path, names(), n=3, cutoff=0.3) or names()
        raise LabError(f"unknown topology {name_or_path!r}", f"did you mean: {', '.join(near)}")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise LabError(f"cannot read topology {path}: {' '.join(str(error).split())}") from error
    return _parse(path, document)


def _parse(path: Path, document: Any) -> Topology:
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list) or not nodes:
        raise LabError(f"topology {path} has no list of nodes", "see lab/topologies/demo.yml")
    if len(nodes) > MAXIMUM_NODES:
        raise LabError(f"topology {path} has {len(nodes)} nodes, the process driver takes {MAXIMUM_NODES}")
    parsed = tuple(_parse_node(path, entry) for entry in nodes)
    seen = [node.name for node in parsed]
    twice = sorted({name for name in seen if seen.count(name) > 1})
    if twice:
        raise LabError(f"topology {path} names a node twice: {', '.join(twice)}")
    return Topology(path.stem, parsed)


def _parse_node(path: Path, entry: Any) -> NodeSpec:
    if not isinstance(entry, dict) or not {"name", "hardware"} <= entry.keys():
        raise LabError(f"topology {path}: a node needs name and hardware, found {entry!r}")
    unknown = sorted(entry.keys() - _NODE_KEYS)
    if unknown:
        raise LabError(f"topology {path}: node {entry['name']} has unknown keys {', '.join(unknown)}")
    if not _NODE_NAME.fullmatch(str(entry["name"])):
        raise LabError(f"topology {path}: node name {entry['name']!r} is not 1 to 16 lower-case letters, digits, hyphens")
    system = entry.get("system", "debian-12")
    if system not in SUITES:
        raise LabError(f"topology {path}: node {entry['name']} has unknown system {system!r}, use {', '.join(SUITES)}")
    return NodeSpec(
        name=entry["name"],
        hardware=entry["hardware"],
        system=system,
        hostname=entry.get("hostname") or entry["name"],
        labels=tuple(sorted((entry.get("labels") or {}).items())),
        taints=tuple(entry.get("taints") or ()),
    )
