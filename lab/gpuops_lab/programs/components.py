# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which programs the lab is made of, and the Go packages that they are built from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from gpuops_lab.errors import LabError
from gpuops_lab.paths import LAB_FOLDER

DEFAULT_KUBERNETES = "1.36.3"
ETCD = "3.7.3"
CONTAINERD = "2.4.2"
CNI_PLUGINS = "1.10.0"
NVIDIA_TOOLKIT = "1.20.2"

# Seconds that a cold build took on two cores, for the estimate on the progress line only.
_COLD_SECONDS = {
    "kube-apiserver": 180,
    "kubelet": 330,
    "kube-controller-manager": 60,
    "kube-scheduler": 10,
    "kubectl": 40,
    "kube-proxy": 15,
    "etcd": 47,
    "containerd": 60,
    "nvidia-ctk": 35,
}


@dataclass(frozen=True)
class Program:
    """One executable and the Go package that holds its main function."""

    name: str
    package: str

    @property
    def cold_seconds(self) -> int:
        """Rough seconds of a build with an empty Go cache on two cores."""
        return _COLD_SECONDS.get(self.name, 4)


@dataclass(frozen=True)
class Component:
    """A Go module of the lab that pins programs of one project by version and checksum."""

    name: str
    version: str
    programs: tuple[Program, ...]
    linker_flags: str = "-s -w"
    cgo: bool = False  # whether a C compiler takes part

    @property
    def folder(self) -> Path:
        """Folder with the component's go.mod and go.sum."""
        return LAB_FOLDER / "components" / f"{self.name}-{self.version}"


def kubernetes_version() -> str:
    """The Kubernetes version to use: C(GPUOPS_K8S) or the default.

    Raises:
        LabError: No component of that version is pinned.
    """
    version = os.environ.get("GPUOPS_K8S", DEFAULT_KUBERNETES).removeprefix("v")
    if not (LAB_FOLDER / "components" / f"kubernetes-{version}").is_dir():
        pinned = ", ".join(pinned_kubernetes_versions())
        raise LabError(f"Kubernetes {version} is not pinned in lab/components", f"set GPUOPS_K8S to one of: {pinned}")
    return version


def pinned_kubernetes_versions() -> list[str]:
    """Versions with a folder in lab/components, oldest first."""
    found = [folder.name.removeprefix("kubernetes-") for folder in (LAB_FOLDER / "components").glob("kubernetes-*")]
    return sorted(found, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])


def components(kubernetes: str) -> list[Component]:
    """All components of a lab, in the order in which they are built."""
    return [_etcd(), _containerd(), _cni_plugins(), _kubernetes(kubernetes)]


def nvidia_toolkit() -> Component:
    """The vendor's container toolkit. It is no part of a cluster: nodes install it from packages."""
    prefix = "github.com/NVIDIA/nvidia-container-toolkit"
    names = ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime")
    stamp = f"-s -w -X {prefix}/internal/info.version={NVIDIA_TOOLKIT}"
    programs = tuple(Program(name, f"{prefix}/cmd/{name}") for name in names)
    return Component("nvidia-container-toolkit", NVIDIA_TOOLKIT, programs, stamp, cgo=True)


def _etcd() -> Component:
    return Component("etcd", ETCD, (Program("etcd", "go.etcd.io/etcd/server/v3"),))


def _containerd() -> Component:
    names = ("containerd", "containerd-shim-runc-v2", "ctr")
    prefix = "github.com/containerd/containerd/v2"
    version = f"-X {prefix}/version.Version=v{CONTAINERD}"
    return Component(
        "containerd", CONTAINERD, tuple(Program(name, f"{prefix}/cmd/{name}") for name in names), f"-s -w {version}"
    )


def _cni_plugins() -> Component:
    packages = ("main/bridge", "main/loopback", "ipam/host-local", "meta/portmap")
    prefix = "github.com/containernetworking/plugins/plugins"
    programs = tuple(Program(package.split("/")[1], f"{prefix}/{package}") for package in packages)
    return Component("cni", CNI_PLUGINS, programs)


def _kubernetes(version: str) -> Component:
    names = ("kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler", "kubectl", "kube-proxy")
    minor = version.split(".")[1]
    stamps = {"gitVersion": f"v{version}", "gitMajor": "1", "gitMinor": minor, "gitTreeState": "clean"}
    flags = [
        f"-X {package}.{key}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for key, value in stamps.items()
    ]
    programs = tuple(Program(name, f"k8s.io/kubernetes/cmd/{name}") for name in names)
    return Component("kubernetes", version, programs, " ".join(["-s -w", *flags]))
