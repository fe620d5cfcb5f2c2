# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of what a vendor needs in a node's user space, and of what does not go together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple


@dataclass(frozen=True)
class Repository:
    """A package repository of the vendor.

    C(url) may hold C({version}) of the packages, C({codename}), C({major}) and C({release}) of the distribution, and
    C({architecture}) as the package manager names it.
    """

    name: str  # of the source's file
    url: str
    key: str  # URL of the armoured signing key
    suite: str = ""  # Debian family: "/" for a flat repository
    components: Tuple[str, ...] = ()


@dataclass(frozen=True)
class PackageSet:
    """What one kind of distribution installs."""

    packages: Tuple[str, ...]
    version: str = ""  # the packages are pinned together at it; "" takes what the repository has
    repository_version: str = ""  # {version} of the repository's URL; the packages' version when empty
    repository: Optional[Repository] = None


@dataclass(frozen=True)
class SmokeTest:
    """A program that shows that the packages see the GPUs: it ends with 0 and prints C(pattern) at least once for each."""

    command: Tuple[str, ...]
    pattern: str


@dataclass(frozen=True)
class RuntimeHandler:
    """A runtime handler of the container runtime, chosen by pods through a RuntimeClass of the same name."""

    name: str
    path: str  # of the program on the node
    default: bool = False  # whether the vendor asks for it to be the default


@dataclass(frozen=True)
class DeviceSpecification:
    """How the Container Device Interface (CDI) names the vendor's GPUs.

    C(generator) is the command of the vendor's program that prints a specification as JSON, with a device for each GPU
    named by index or UUID.
    """

    kind: str
    generator: Tuple[str, ...] = ()
    disable_hook: str = ""  # argument of the generator for each hook that is to be left out, with C({value})


@dataclass(frozen=True)
class KernelDriver:
    """How a kernel driver is installed, where the user asks for that."""

    packages: Mapping[str, Tuple[str, ...]]  # distribution key to packages, see UserSpace.sets
    modules: Tuple[str, ...]
    blacklist: Tuple[str, ...] = ()  # modules that must not take the GPU


@dataclass(frozen=True)
class Incompatibility:
    """Versions that do not go together.

    C(when) gives, for each fact, the values for which it holds: a comma separated range (C(>=1.18,<1.18.1)) for versions,
    words separated by C(|) for names. All must hold. A fact that is not known makes it not hold. Known facts are those of
    the filter compatibility_problems.
    """

    code: str
    when: Mapping[str, str]
    message: str
    hint: str
    source: str  # where this is known from


@dataclass(frozen=True)
class UserSpace:
    """C(sets): source (distribution, vendor), then distribution key to packages.

    A distribution key is C(debian-13), C(ubuntu-24.04), C(redhat-9), or the family alone: C(debian), C(redhat), C(suse).
    The most specific one counts. One that is given with no packages says that there are none.
    """

    sets: Mapping[str, Mapping[str, PackageSet]] = field(default_factory=dict)
    smoke_tests: Tuple[SmokeTest, ...] = ()
    handlers: Tuple[RuntimeHandler, ...] = ()
    driver: Optional[KernelDriver] = None
    cdi: Optional[DeviceSpecification] = None
    groups: Tuple[str, ...] = ()  # groups of the node that may open the device nodes
    guidance: Tuple[str, ...] = ()  # environment variables that choose among GPUs in a program
