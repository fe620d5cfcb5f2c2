# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's options: command line before environment before configuration file before defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from gpuops_lab.plugin import flags
from gpuops_lab.plugin.flags import Flag
from gpuops_lab.plugin.model import PluginExit

_STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
_FLAGS = {
    "mig-strategy": Flag("none", "MIG_STRATEGY", choices=("none", "single", "mixed")),
    "fail-on-init-error": Flag(True, "FAIL_ON_INIT_ERROR"),
    "nvidia-driver-root": Flag("/", "NVIDIA_DRIVER_ROOT", aliases=("driver-root",)),
    "nvidia-dev-root": Flag("", "NVIDIA_DEV_ROOT", aliases=("dev-root",)),
    "pass-device-specs": Flag(False, "PASS_DEVICE_SPECS"),
    "device-list-strategy": Flag("envvar", "DEVICE_LIST_STRATEGY"),
    "device-id-strategy": Flag("uuid", "DEVICE_ID_STRATEGY", choices=("uuid", "index")),
    "gdrcopy-enabled": Flag(False, "GDRCOPY_ENABLED"),
    "gds-enabled": Flag(False, "GDS_ENABLED"),
    "mofed-enabled": Flag(False, "MOFED_ENABLED"),
    "cdi-annotation-prefix": Flag("cdi.k8s.io/", "CDI_ANNOTATION_PREFIX"),
    "nvidia-cdi-hook-path": Flag("/usr/bin/nvidia-ctk", "NVIDIA_CDI_HOOK_PATH NVIDIA_CTK_PATH", aliases=("nvidia-ctk-path",)),
    "container-driver-root": Flag(
        "/driver-root", "DRIVER_ROOT_CTR_PATH CONTAINER_DRIVER_ROOT", aliases=("driver-root-ctr-path",)
    ),
    "mps-root": Flag("", "MPS_ROOT"),
    "shared-devices-allocation-policy": Flag(
        "distributed", "SHARED_DEVICES_ALLOCATION_POLICY", choices=("distributed", "packed")
    ),
    "device-discovery-strategy": Flag("auto", "DEVICE_DISCOVERY_STRATEGY", choices=("auto", "nvml", "tegra")),
    "imex-channel-ids": Flag("", "IMEX_CHANNEL_IDS"),
    "imex-required": Flag(False, "IMEX_REQUIRED"),
    "kubelet-socket": Flag("", "KUBELET_SOCKET"),
    "cdi-feature-flags": Flag("", "CDI_FEATURE_FLAGS"),
    "cdi-disable-hooks": Flag("", "CDI_DISABLE_HOOKS"),
    "config-file": Flag("", "CONFIG_FILE"),
}
# Keys of a configuration file's C(flags) block.
_FILE_KEYS = {
    "migStrategy": "mig-strategy",
    "failOnInitError": "fail-on-init-error",
    "nvidiaDriverRoot": "nvidia-driver-root",
    "nvidiaDevRoot": "nvidia-dev-root",
    "plugin.passDeviceSpecs": "pass-device-specs",
    "plugin.deviceListStrategy": "device-list-strategy",
    "plugin.deviceIDStrategy": "device-id-strategy",
    "plugin.cdiAnnotationPrefix": "cdi-annotation-prefix",
    "plugin.containerDriverRoot": "container-driver-root",
}


@dataclass(frozen=True)
class Sharing:
    """How one GPU is offered several times."""

    replicas: int
    rename: bool
    fail_greater_than_one: bool


@dataclass(frozen=True)
class NvidiaConfig:
    """The options that decide what the plugin offers and answers."""

    fail_on_init_error: bool
    dev_root: str
    container_driver_root: str
    pass_device_specs: bool
    device_list_strategy: tuple[str, ...]
    device_id_strategy: str
    cdi_annotation_prefix: str
    shared_policy: str
    extras: tuple[tuple[str, bool], ...]  # environment variables that are "enabled" for containers, and whether they are
    sharing: Sharing | None


def load(arguments: Sequence[str], environment: Mapping[str, str]) -> NvidiaConfig:
    """Read all sources.

    Raises:
        PluginExit: A value or the configuration file is wrong.
    """
    values, given = flags.parse(arguments, _FLAGS, environment, error_code=1)
    document = _document(str(values["config-file"])) if values["config-file"] else {}
    for key, value in _flat(document.get("flags") or {}).items():
        name = _FILE_KEYS.get(key)
        if name and name not in given:
            values[name] = ",".join(value) if isinstance(value, list) else value
    strategies = tuple(str(values["device-list-strategy"]).split(","))
    for strategy in strategies:
        if strategy not in _STRATEGIES:
            raise PluginExit(f"invalid --device-list-strategy option: {strategy}")
    return NvidiaConfig(
        fail_on_init_error=bool(values["fail-on-init-error"]),
        dev_root=str(values["nvidia-dev-root"] or values["nvidia-driver-root"]),
        container_driver_root=str(values["container-driver-root"]),
        pass_device_specs=bool(values["pass-device-specs"]),
        device_list_strategy=strategies,
        device_id_strategy=str(values["device-id-strategy"]),
        cdi_annotation_prefix=str(values["cdi-annotation-prefix"]),
        shared_policy=str(values["shared-devices-allocation-policy"]),
        extras=tuple((f"NVIDIA_{name.upper()}", bool(values[f"{name}-enabled"])) for name in ("gdrcopy", "gds", "mofed")),
        sharing=_sharing(document.get("sharing") or {}),
    )


def _document(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            document = yaml.safe_load(stream)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PluginExit(f"unable to load config: {path}: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or document.get("version") != "v1":
        raise PluginExit(f"unable to load config: {path}: needs version: v1")
    unknown = sorted(document.keys() - {"version", "flags", "resources", "sharing", "imex"})
    if unknown:
        raise PluginExit(f"unable to load config: {path}: unknown field {unknown[0]!r}")
    return document


def _flat(block: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in block.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return flat


def _sharing(block: dict[str, Any]) -> Sharing | None:
    """Sharing of nvidia.com/gpu; MPS wins where both are given."""
    kind = "mps" if block.get("mps") else "timeSlicing"
    chosen = block.get(kind)
    if not chosen:
        return None
    for entry in chosen.get("resources") or ():
        if str(entry.get("name")).removeprefix("nvidia.com/") != "gpu":
            continue
        replicas = entry.get("replicas")
        if not isinstance(replicas, int) or replicas < 2:
            raise PluginExit(f"unable to load config: number of replicas must be >= 2, found {replicas!r}")
        return Sharing(
            replicas, bool(chosen.get("renameByDefault")), kind == "mps" or bool(chosen.get("failRequestsGreaterThanOne"))
        )
    return None
