# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects that a vendor's device plugin consists of: plain dictionaries out of the vendor's record."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import labels
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import HostPath, PluginOption, Vendor

Object = Dict[str, Any]

PLUGIN = "device-plugin"  # component of all that belongs to a device plugin
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def node_label(vendor: Vendor) -> str:
    """The label that this collection puts on the nodes on which the vendor's plugin is to run."""
    return f"gpuops.k8s/vendor-{vendor.name}"


def arguments(vendor: Vendor, options: Mapping[str, Any]) -> List[str]:
    """The plugin's arguments for the user's options, in the order of the vendor's record.

    Raises GpuOpsError for an option that the vendor's plugin does not have, or a value that it does not take.
    """
    known = vendor.plugin.options
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise GpuOpsError(
            f"Checking the options of the {vendor.title} device plugin: unknown {', '.join(unknown)}",
            f"Known options: {', '.join(sorted(known))}.",
        )
    found = list(vendor.plugin.arguments)
    for name, option in known.items():
        value = options.get(name)
        text = option.default if value is None else _option_value(vendor, name, option, value)
        if text is not None:
            found.append(option.argument.format(value=text))
    return found


def _option_value(vendor: Vendor, name: str, option: PluginOption, value: Any) -> str:
    where = f"Checking the option {name} of the {vendor.title} device plugin"
    if isinstance(value, (dict, list)):
        raise GpuOpsError(f"{where}: a single value is needed, not {type(value).__name__}", "Give one value.")
    text = str(value)
    if option.type == "bool":
        if text.lower() not in _TRUE + _FALSE:
            raise GpuOpsError(f'{where}: "{text}" is no yes or no', "Give true or false.")
        return "true" if text.lower() in _TRUE else "false"
    if option.type == "int":
        if isinstance(value, bool) or not text.strip().isdigit():
            raise GpuOpsError(f'{where}: "{text}" is no whole number', "Give a number such as 2.")
        return text.strip()
    if option.choices and text not in option.choices:
        raise GpuOpsError(f'{where}: "{text}" is not possible', f"Choose one of {', '.join(option.choices)}.")
    return text


def namespace(name: str) -> Object:
    """The namespace; plugins mount folders of the node, which only the privileged pod security level allows."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {labels.MANAGED_BY: labels.MANAGER, "pod-security.kubernetes.io/enforce": "privileged"},
        },
    }


def daemonset(
    vendor: Vendor,
    namespace_name: str,
    image: str,
    plugin_arguments: Sequence[str],
    *,
    image_pull_policy: str = "IfNotPresent",
    image_pull_secrets: Sequence[str] = (),
    node_selector: Optional[Mapping[str, str]] = None,
    tolerations: Sequence[Mapping[str, Any]] = (),
    resources: Optional[Mapping[str, Any]] = None,
) -> Object:
    """The vendor's DaemonSet. C(node_selector) replaces the label by which nodes are chosen."""
    selector = {labels.NAME: vendor.plugin.name, labels.MANAGED_BY: labels.MANAGER}
    marks = {**selector, labels.COMPONENT: PLUGIN, labels.VENDOR: vendor.name}
    chosen = dict(node_selector) if node_selector else {node_label(vendor): "true"}
    pod: Object = {
        "automountServiceAccountToken": False,
        "priorityClassName": "system-node-critical",
        "nodeSelector": {"kubernetes.io/os": "linux", **chosen},
        "tolerations": _tolerations(vendor, tolerations),
        "containers": [_container(vendor, image, plugin_arguments, image_pull_policy, resources)],
        "volumes": [_volume(path) for path in vendor.plugin.host_paths],
    }
    if image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in image_pull_secrets]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": vendor.plugin.name, "namespace": namespace_name, "labels": marks},
        "spec": {
            "selector": {"matchLabels": selector},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "template": {"metadata": {"labels": marks}, "spec": pod},
        },
    }


def _container(
    vendor: Vendor, image: str, plugin_arguments: Sequence[str], pull_policy: str, resources: Optional[Mapping[str, Any]]
) -> Object:
    plugin = vendor.plugin
    if plugin.privileged:
        security: Object = {"privileged": True}
    else:
        security = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    container: Object = {
        "name": "device-plugin",
        "image": image,
        "imagePullPolicy": pull_policy,
        "args": list(plugin_arguments),
        "securityContext": security,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [_mount(path) for path in plugin.host_paths],
        "resources": dict(resources) if resources else {"requests": {"cpu": "20m", "memory": "48Mi"}},
    }
    if plugin.environment:
        container["env"] = [{"name": name, "value": value} for name, value in plugin.environment.items()]
    return container


def _mount(path: HostPath) -> Object:
    mount: Object = {"name": path.name, "mountPath": path.mount_path}
    if path.read_only:
        mount["readOnly"] = True
    if path.path == "/":
        # Mounts that come later below the node's root, such as a driver's, must show in the plugin too.
        mount["mountPropagation"] = "HostToContainer"
    return mount


def _volume(path: HostPath) -> Object:
    return {"name": path.name, "hostPath": {"path": path.path, "type": path.type}}


def _tolerations(vendor: Vendor, more: Sequence[Mapping[str, Any]]) -> List[Object]:
    found: List[Object] = []
    for item in [*vendor.plugin.tolerations, *more]:
        cleaned = {key: value for key, value in item.items() if value is not None}
        if cleaned not in found:
            found.append(cleaned)
    return found
