# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that the verification modules share, turned into the records of the pure part."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._core.situation import NodeInput
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors import registry
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

_FACT_KEYS = ("gpus", "resources")


def vendors_argument_spec() -> Dict[str, Any]:
    """Argument spec of the option C(vendors)."""
    return {"vendors": {"type": "list", "elements": "str"}}


def inventory_argument_spec() -> Dict[str, Any]:
    """Argument spec of the options C(nodes), C(replicas) and C(vendors)."""
    node = {
        "host": {"type": "str", "required": True},
        "name": {"type": "str"},
        "facts": {"type": "dict"},
        "ledger": {"type": "dict"},
        "expected_gpus": {"type": "int"},
    }
    return {
        "nodes": {"type": "list", "elements": "dict", "required": True, "options": node},
        "replicas": {"type": "dict", "default": {}},
        **vendors_argument_spec(),
    }


def chosen_vendors(names: Optional[Sequence[str]]) -> Dict[str, Vendor]:
    """The named vendors, all that are known without names.

    Raises:
        GpuOpsError: A name is not known.
    """
    unknown = [name for name in names or [] if name not in registry.VENDORS]
    if unknown:
        raise GpuOpsError(
            f"Choosing the vendors: {', '.join(unknown)} is not known", f"Choose among {', '.join(registry.names())}."
        )
    return {name: vendor for name, vendor in registry.VENDORS.items() if not names or name in names}


def to_nodes(entries: Sequence[Mapping[str, Any]]) -> List[NodeInput]:
    """The option C(nodes) as records.

    Raises:
        GpuOpsError: The facts of a node are not those of gpu_facts.
    """
    nodes = []
    for entry in entries:
        facts = entry.get("facts") or None
        if facts is not None and not all(key in facts for key in _FACT_KEYS):
            raise GpuOpsError(
                f"Reading the facts of host {entry['host']}: no {' and '.join(_FACT_KEYS)} in them",
                "Pass ansible_facts['gpu'] of the module gpuops.k8s.gpu_facts.",
            )
        name = entry.get("name") or entry["host"]
        nodes.append(NodeInput(entry["host"], name, facts, entry.get("ledger") or None, entry.get("expected_gpus")))
    return nodes


def to_replicas(value: Mapping[str, Any]) -> Dict[str, int]:
    """The option C(replicas): resource to the number of pods that share one device.

    Raises:
        GpuOpsError: A number is not whole or below 1.
    """
    try:
        replicas = {str(resource): int(str(number)) for resource, number in value.items()}
    except ValueError:
        replicas = {"": 0}
    if any(number < 1 for number in replicas.values()):
        raise GpuOpsError(f"Reading replicas {dict(value)}: not whole numbers from 1 on", "Write them like nvidia.com/gpu: 4.")
    return replicas


def write_atomically(folder: str, files: Mapping[str, str]) -> List[str]:
    """Write text files into a folder, each complete or not at all; returns their paths.

    Raises:
        GpuOpsError: The folder cannot be made or written.
    """
    temporaries: Dict[str, str] = {}
    try:
        os.makedirs(folder, exist_ok=True)
        for name, text in files.items():
            handle, temporaries[name] = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.chmod(temporaries[name], 0o644)
        for name in files:
            os.replace(temporaries[name], os.path.join(folder, name))
            del temporaries[name]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GpuOpsError(
            f"Writing the evidence to {folder}: {reason}", "Choose a folder that this user may write to."
        ) from None
    finally:
        for left in temporaries.values():
            os.unlink(left)
    return [os.path.join(folder, name) for name in files]
