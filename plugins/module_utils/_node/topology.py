# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The compute topology that AMD's kernel driver shows: which GPU or partition is which node, and how they are linked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import Peer
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root


@dataclass(frozen=True)
class TopologyNode:
    """A GPU, or one partition of it."""

    folder: str
    number: int
    address: str  # PCI address of the GPU
    render_minor: int
    target: str  # gfx942, "" if it is not said


def read(root: Root, folder: str) -> List[TopologyNode]:
    """The GPUs and partitions in the order of their numbers; the processors' nodes have no render node and are left out."""
    nodes: List[TopologyNode] = []
    for name in root.names(folder) if folder else []:
        values = properties(root.read(f"{folder}/{name}/properties"))
        minor, location = values.get("drm_render_minor"), values.get("location_id")
        if minor and location is not None and name.isdecimal():
            # The upper bits of the location number the partitions.
            place = f"{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
            address = f"{values.get('domain') or 0:04x}:{place}"
            nodes.append(TopologyNode(f"{folder}/{name}", int(name), address, minor, _target(values)))
    return sorted(nodes, key=lambda node: node.number)


def _target(values: Mapping[str, int]) -> str:
    number = values.get("gfx_target_version", 0)
    return f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}" if number > 0 else ""


def memory(root: Root, nodes: List[TopologyNode]) -> int:
    """Bytes of the memory banks of the given nodes together."""
    total = 0
    for node in nodes:
        for bank in root.names(f"{node.folder}/mem_banks"):
            total += properties(root.read(f"{node.folder}/mem_banks/{bank}/properties")).get("size_in_bytes", 0)
    return total


def peers(root: Root, nodes: List[TopologyNode], kinds: Mapping[int, str]) -> Dict[str, List[Peer]]:
    """PCI address of each GPU to the GPUs that it reaches over a fabric. C(kinds) names the types of links that count."""
    addresses = {node.number: node.address for node in nodes}
    found: Dict[str, List[Peer]] = {}
    for node in nodes if kinds else []:
        # Each partition of a GPU is linked to all others, so the first one tells it all.
        if node.address in found:
            continue
        linked: Dict[str, str] = {}
        for name in root.names(f"{node.folder}/io_links"):
            values = properties(root.read(f"{node.folder}/io_links/{name}/properties"))
            other, kind = addresses.get(values.get("node_to", -1), ""), kinds.get(values.get("type", -1), "")
            if other and kind and other != node.address:
                linked[other] = kind
        found[node.address] = [{"pci_address": other, "link": kind, "count": 1} for other, kind in sorted(linked.items())]
    return found


def properties(text: str) -> Dict[str, int]:
    """Lines of a word and a number as keys and values."""
    values: Dict[str, int] = {}
    for line in text.splitlines():
        key, _space, number = line.strip().partition(" ")
        try:
            values[key] = int(number)
        except ValueError:
            continue
    return values
