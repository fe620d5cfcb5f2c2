# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DRM nodes of a GPU and of its partitions, from sysfs."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root


def nodes(root: Root, folder: str) -> Tuple[str, str]:
    """Names of the card and the render node of the device in C(folder), "" where it has none."""
    names = root.names(f"{folder}/drm")
    card = next((name for name in names if re.match(r"^card\d+$", name)), "")
    render = next((name for name in names if re.match(r"^renderD\d+$", name)), "")
    return card, render


def partitions(root: Root, pattern: str, owners: Mapping[int, str]) -> Dict[str, Dict[str, List[str]]]:
    """GPU's PCI address to partition id to the partition's device nodes.

    C(owners) gives the GPU of a render minor. Partitions that it does not name are under "".
    """
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
