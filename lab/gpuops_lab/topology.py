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
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_TAINT = re.compile(r"[\w./-]+(=[\w.-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)")
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
    if not _is_file(path):
        near = difflib.get_close_matches(name_or_path, names(), n=3, cutoff=0.3) or names()
        raise LabError(f"unknown topology {name_or_path!r}", f"did you mean: {', '.join(near)}")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise LabError(f"cannot read topology {path}: {' '.join(str(error).split())}") from error
    return _parse(path, document)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False  # a name that is too long for any file


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


def _wrong_type(entry: dict[Any, Any]) -> str:
    """What in a node's entry is not of the type that it must be, "" if nothing is."""
    for key in ("name", "hardware", "system", "hostname"):
        if key in entry and not isinstance(entry[key], str):
            return f"{key} must be text, found {entry[key]!r}"
    labels, taints = entry.get("labels") or {}, entry.get("taints") or []
    if not isinstance(labels, dict) or not all(isinstance(word, str) for pair in labels.items() for word in pair):
        return f"labels must be pairs of text, found {labels!r}"
    if not isinstance(taints, list) or not all(isinstance(t, str) and _TAINT.fullmatch(t) for t in taints):
        return f"taints must be a list of key=value:Effect, found {taints!r}"
    if "hostname" in entry and not _HOST_NAME.fullmatch(entry["hostname"]):
        return f"hostname {entry['hostname']!r} is no host name"
    return ""


def _parse_node(path: Path, entry: Any) -> NodeSpec:
    if not isinstance(entry, dict) or not {"name", "hardware"} <= entry.keys():
        raise LabError(f"topology {path}: a node needs name and hardware, found {entry!r}")
    unknown = sorted(str(key) for key in entry.keys() - _NODE_KEYS)
    if unknown:
        raise LabError(f"topology {path}: node {entry['name']} has unknown keys {', '.join(unknown)}")
    wrong = _wrong_type(entry)
    if wrong:
        raise LabError(f"topology {path}: node {entry['name']!r}: {wrong}")
    if not _NODE_NAME.fullmatch(entry["name"]):
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
