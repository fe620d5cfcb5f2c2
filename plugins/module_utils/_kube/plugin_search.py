# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which DaemonSets of a cluster are device plugins, whose, and how they are doing: pure functions."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, Optional

from ansible_collections.gpuops.k8s.plugins.module_utils._kube import labels, plugin_objects, rollout
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.names import split_image
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS

Object = Dict[str, Any]

DAEMONSETS = "/apis/apps/v1/daemonsets"
_FOLDER = "device-plugins"


def _pod_spec(item: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = ((item.get("spec") or {}).get("template") or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def offers_devices(item: Mapping[str, Any]) -> bool:
    """Whether a DaemonSet mounts the kubelet's device-plugins folder, without which no plugin can register."""
    paths = [str((volume.get("hostPath") or {}).get("path") or "") for volume in _pod_spec(item).get("volumes") or []]
    return any(path.rstrip("/").endswith("/" + _FOLDER) for path in paths)


def vendor_of(item: Mapping[str, Any], vendors: Optional[Iterable[Vendor]] = None) -> Optional[Vendor]:
    """The vendor whose device plugin a DaemonSet looks like, None if it is no device plugin of a known one.

    Own objects say it by label. Others are known by the image's repository, then by words that name the
    vendor in the name, the image, the node selector, the arguments or the environment.
    """
    known = list(VENDORS.values() if vendors is None else vendors)
    marks = labels.of(item)
    if labels.is_owned(item) and marks.get(labels.COMPONENT) == plugin_objects.PLUGIN:
        return next((vendor for vendor in known if vendor.name == marks.get(labels.VENDOR)), None)
    if not offers_devices(item):
        return None
    images = [split_image(container.get("image") or "")[0] for container in _pod_spec(item).get("containers") or []]
    for vendor in known:
        if any(_tail(image) == _tail(vendor.plugin.image) for image in images):
            return vendor
    words = " ".join(_words(item))
    for vendor in known:
        prefixes = {re.escape(name.split("/")[0]) for name in vendor.resources.values()}
        if re.search(rf"\b{vendor.name}|{'|'.join(sorted(prefixes))}", words):
            return vendor
    return None


def _tail(repository: str) -> str:
    """The last two parts of a repository: a mirror changes what stands before them."""
    return "/".join(repository.split("/")[-2:])


def _words(item: Mapping[str, Any]) -> List[str]:
    spec = _pod_spec(item)
    found = [str((item.get("metadata") or {}).get("name") or "")]
    for key in spec.get("nodeSelector") or {}:
        found.append(str(key))
    for container in spec.get("containers") or []:
        found += [str(container.get("name") or ""), str(container.get("image") or "")]
        found += [str(part) for part in (container.get("command") or []) + (container.get("args") or [])]
        found += [f"{entry.get('name')}={entry.get('value')}" for entry in container.get("env") or []]
    return [word.lower() for word in found]


def describe(item: Mapping[str, Any], vendor: Vendor, pods: Iterable[Mapping[str, Any]]) -> Object:
    """One entry of C(device_plugin_info): the DaemonSet, its numbers and its pods."""
    metadata = item.get("metadata") or {}
    status = item.get("status") or {}
    container = plugin_container(item, vendor)
    own = rollout.pods_of(item, pods)
    return {
        "vendor": vendor.name,
        "resources": sorted(set(vendor.resources.values())),
        "name": metadata.get("name"),
        "namespace": metadata.get("namespace"),
        "owned": labels.is_owned(item),
        "image": container.get("image") or "",
        "version": split_image(container.get("image") or "")[1],
        "desired": status.get("desiredNumberScheduled") or 0,
        "ready": status.get("numberReady") or 0,
        "available": status.get("numberAvailable") or 0,
        "arguments": list(container.get("args") or []),
        "pods": [rollout.describe_pod(pod) for pod in own],
    }


def plugin_container(item: Mapping[str, Any], vendor: Vendor) -> Mapping[str, Any]:
    """The container that is the plugin: by image, else the first."""
    containers = _pod_spec(item).get("containers") or []
    wanted = _tail(vendor.plugin.image)
    fitting = [container for container in containers if _tail(split_image(container.get("image") or "")[0]) == wanted]
    found: Mapping[str, Any] = (fitting or containers or [{}])[0]
    return found


def foreign(daemonsets: Iterable[Mapping[str, Any]], vendor: Vendor, namespace: str) -> List[str]:
    """Names (namespace/name) of others' DaemonSets for this vendor, and of own ones in another namespace."""
    found = []
    for item in daemonsets:
        metadata = item.get("metadata") or {}
        same_place = metadata.get("namespace") == namespace and metadata.get("name") == vendor.plugin.name
        if vendor_of(item, [vendor]) is not None and not (labels.is_owned(item) and same_place):
            found.append(f"{metadata.get('namespace')}/{metadata.get('name')}")
    return sorted(found)
