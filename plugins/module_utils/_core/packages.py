# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages of a vendor a node installs, from which repository: chosen by the distribution's own facts."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError

Json = Dict[str, Any]
_FAMILIES = {"debian": "apt", "redhat": "dnf", "suse": "zypper"}
# Distributions that have data of their own; every other one is known by its family.
_OWN = ("debian", "ubuntu", "fedora")
_DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PIN = {"apt": "=", "dnf": "-", "zypper": "="}


def distribution_keys(facts: Mapping[str, Any]) -> List[str]:
    """Names by which the data may know a distribution, the most specific first: debian-13, debian.

    C(facts) are Ansible's: distribution, distribution_version, distribution_major_version, os_family.
    """
    family = str(facts.get("os_family", "")).lower()
    own = str(facts.get("distribution", "")).lower()
    names = [own, family] if own in _OWN and own != family else [family]
    versions = (str(facts.get("distribution_version", "")), str(facts.get("distribution_major_version", "")))
    specific = [f"{names[0]}-{version}" for version in versions if version]
    return [*dict.fromkeys(specific), *names]


def manager_of(facts: Mapping[str, Any]) -> str:
    """apt, dnf or zypper.

    Raises:
        GpuOpsError: A family without one of them.
    """
    family = str(facts.get("os_family", "")).lower()
    if family not in _FAMILIES:
        raise GpuOpsError(
            f"Choosing packages for {_title(facts)}: its family {facts.get('os_family') or 'without a name'} has no data",
            "Known families: Debian, RedHat, Suse. Install the packages yourself and set the source to none.",
        )
    return _FAMILIES[family]


def choose(table: Mapping[str, Any], facts: Mapping[str, Any]) -> Optional[Any]:
    """The entry of the most specific distribution key, None without one."""
    return next((table[key] for key in distribution_keys(facts) if key in table), None)


def plan(
    title: str,
    sets: Mapping[str, Mapping[str, Any]],
    source: str,
    facts: Mapping[str, Any],
    version: str = "",
    repository: Optional[Mapping[str, Any]] = None,
) -> Json:
    """What to install: manager, names, packages (with pins), version, and the repository with all parts filled in, or None.

    Args:
        title: The vendor, for errors.
        sets: Source to distribution key to a package set with packages, version, repository_version and repository.
        source: distribution, vendor or none; the first that has packages when empty.
        facts: Ansible's facts of the node.
        version: Replaces the set's version.
        repository: Replaces parts of the set's repository (url, key, suite, components).

    Raises:
        GpuOpsError: The source has nothing for this distribution.
    """
    source = source or next((name for name, table in sets.items() if choose(table, facts) is not None), "none")
    if source == "none":
        return {"source": source, "manager": "", "names": [], "packages": [], "version": "", "repository": None}
    manager = manager_of(facts)
    chosen = choose(sets.get(source) or {}, facts)
    if chosen is None:
        others = [name for name, table in sets.items() if choose(table, facts) is not None]
        raise GpuOpsError(
            f"Choosing {title} packages for {_title(facts)}: the source {source} has none",
            f"Use {' or '.join([*others, 'none'])}.",
        )
    pinned = version or chosen.version
    names = list(chosen.packages)
    return {
        "source": source,
        "manager": manager,
        "names": names,
        "packages": [f"{name}{_PIN[manager]}{pinned}" for name in names] if pinned else names,
        "version": pinned,
        "repository": _repository(chosen, pinned, facts, manager, repository or {}),
    }


def _repository(chosen: Any, pinned: str, facts: Mapping[str, Any], manager: str, own: Mapping[str, Any]) -> Optional[Json]:
    given = chosen.repository
    if given is None:
        return None
    words = _words(facts, manager, chosen.repository_version or pinned)
    components: Sequence[str] = own.get("components", given.components)
    return {
        "name": given.name,
        "url": str(own.get("url") or given.url).format(**words),
        "key": str(own.get("key") or given.key),
        "suite": str(own.get("suite") or given.suite).format(**words),
        "components": list(components),
    }


def _words(facts: Mapping[str, Any], manager: str, version: str) -> Dict[str, str]:
    machine = str(facts.get("architecture", ""))
    release = str(facts.get("distribution_version", ""))
    major, _dot, minor = release.partition(".")
    return {
        "version": version,
        "codename": f"{major}sp{minor}" if manager == "zypper" else str(facts.get("distribution_release", "")),
        "major": major,
        "release": release,
        "architecture": _DEBIAN_ARCHITECTURES.get(machine, machine) if manager == "apt" else machine,
    }


def _title(facts: Mapping[str, Any]) -> str:
    return f"{facts.get('distribution') or 'a distribution without a name'} {facts.get('distribution_version', '')}".strip()
