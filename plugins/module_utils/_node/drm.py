# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DRM nodes of a GPU and of its partitions, from sysfs."""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root


def nodes(root: Root, folder: str) -> Tuple[str, str]:
    """Names of the card and the render node of the device in C(folder), "" where it has none."""
    names = root.names(f"{folder}/drm")
    card = next((name for name in names if re.match(r"^card\d+$", name)), "")
    render = next((name for name in names if re.match(r"^renderD\d+$", name)), "")
    return card, render


def partitions(root: Root, pattern: str, topology: str) -> Dict[str, Dict[str, List[str]]]:
    """GPU's PCI address (without function) to partition id to the partition's device nodes.

    Which GPU a partition belongs to is in the KFD topology: the node with the partition's render
    minor carries the location of the GPU. Partitions that it does not name are under "".
    """
    owners = _render_owners(root, topology)
    found: Dict[str, Dict[str, List[str]]] = {}
    for folder in root.match(pattern) if pattern else []:
        card, render = nodes(root, folder)
        if not render:
            continue
        name = folder.rsplit("/", 1)[-1].replace(".", "_")
        owner = owners.get(int(render[len("renderD") :]), "")
        paths = [f"/dev/dri/{node}" for node in (card, render) if node]
        found.setdefault(owner, {})[name] = paths
    return {owner: dict(sorted(items.items(), key=_by_number)) for owner, items in found.items()}


def _by_number(item: Tuple[str, List[str]]) -> Tuple[int, str]:
    digits = re.search(r"(\d+)$", item[0])
    return (int(digits.group(1)) if digits else 0, item[0])


def _render_owners(root: Root, topology: str) -> Dict[int, str]:
    owners: Dict[int, str] = {}
    for name in root.names(topology) if topology else []:
        values = _properties(root.read(f"{topology}/{name}/properties"))
        minor, location = values.get("drm_render_minor"), values.get("location_id")
        if minor and location is not None:
            owners[minor] = f"{values.get('domain') or 0:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
    return owners


def _properties(text: str) -> Dict[str, int]:
    values: Dict[str, int] = {}
    for line in text.splitlines():
        parts = line.split()
        number = _integer(parts[1]) if len(parts) == 2 else None
        if number is not None:
            values[parts[0]] = number
    return values


def _integer(text: str) -> Optional[int]:
    try:
        return int(text)
    except ValueError:
        return None
