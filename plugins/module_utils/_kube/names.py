# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the API would refuse, said before anything is changed: names, labels, tolerations, images."""

from __future__ import annotations

import re
from typing import Any, List, Mapping, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError

_DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_DNS_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_PART = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_IMAGE = re.compile(
    r"^(?P<repository>[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)"
    r"(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?$"
)
_TAG = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION_KEYS = ("key", "operator", "value", "effect", "tolerationSeconds")


def check_namespace(name: str) -> None:
    """Raise GpuOpsError if C(name) is no name of a namespace."""
    if not _DNS_LABEL.match(name):
        raise GpuOpsError(
            f'Checking the namespace "{name}": not a valid name', "Use lower-case letters, digits and hyphens, at most 63."
        )


def check_node_names(names: Sequence[str]) -> None:
    """Raise GpuOpsError if one of the names cannot be that of a node."""
    for name in names:
        if len(name) > 253 or not _DNS_NAME.match(name):
            raise GpuOpsError(
                f'Checking the node "{name}": not a valid name', "Give the names that kubectl get nodes shows (gpu_node_name)."
            )


def check_labels(labels: Mapping[str, Any], what: str) -> None:
    """Raise GpuOpsError if a key or a value is no label's."""
    for key, value in labels.items():
        prefix, separator, name = str(key).rpartition("/")
        if not _LABEL_PART.match(name) or (separator and (len(prefix) > 253 or not _DNS_NAME.match(prefix))):
            raise GpuOpsError(f'Checking {what}: "{key}" is not a valid label key', "Write it as prefix.example/name.")
        if not isinstance(value, str):
            raise GpuOpsError(f'Checking {what}: the value of "{key}" is no string', f'Put it in quotes: {key}: "{value}".')
        if value and not _LABEL_PART.match(value):
            raise GpuOpsError(
                f'Checking {what}: "{value}" is not a valid label value', "Use letters, digits, - _ and ., at most 63."
            )


def check_tolerations(tolerations: Sequence[Any]) -> None:
    """Raise GpuOpsError if one of the tolerations has a key or a value that the API does not know."""
    for item in tolerations:
        unknown = sorted(set(item) - set(_TOLERATION_KEYS))
        if unknown:
            raise GpuOpsError(
                f"Checking the tolerations: unknown key {', '.join(unknown)}", f"Known keys: {', '.join(_TOLERATION_KEYS)}."
            )
        operator = item.get("operator", "Equal")
        if operator not in ("Equal", "Exists"):
            raise GpuOpsError(f'Checking the tolerations: unknown operator "{operator}"', "Use Equal or Exists.")
        if operator == "Exists" and item.get("value"):
            raise GpuOpsError("Checking the tolerations: the operator Exists takes no value", "Leave out value, or use Equal.")
        if operator == "Equal" and not item.get("key"):
            raise GpuOpsError("Checking the tolerations: without a key only the operator Exists is allowed", "Give a key.")
        if item.get("effect") and item["effect"] not in _EFFECTS:
            raise GpuOpsError(
                f'Checking the tolerations: unknown effect "{item["effect"]}"', f"Use one of {', '.join(_EFFECTS)}."
            )


def image_reference(image: str, version: str) -> str:
    """The whole reference of an image; C(version) is used as tag where C(image) has neither tag nor digest.

    Raises GpuOpsError if the result is no image reference.
    """
    match = _IMAGE.match(image)
    if not match:
        raise GpuOpsError(f'Checking the image "{image}": not an image reference', "Write registry.example/name/image.")
    if match.group("tag") or match.group("digest"):
        return image
    if not _TAG.match(version):
        raise GpuOpsError(f'Checking the version "{version}": not an image tag', "Give a tag such as v1.2.3.")
    return f"{image}:{version}"


def split_image(reference: str) -> List[str]:
    """Repository and version (tag or digest, "" if neither) of an image reference."""
    match = _IMAGE.match(reference)
    if not match:
        return [reference, ""]
    return [match.group("repository"), match.group("tag") or match.group("digest") or ""]
