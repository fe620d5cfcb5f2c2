# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages for each distribution, on the facts that Ansible records there."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpuops.k8s.plugins.filter.user_space_plan import user_space_plan
from ansible_collections.gpuops.k8s.plugins.module_utils._core import packages
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS


def recorded(distribution: str, version: str, family: str, release: str, machine: str = "x86_64") -> dict[str, Any]:
    """What ansible.builtin.setup says of a distribution."""
    return {
        "distribution": distribution, "distribution_version": version, "distribution_release": release, "os_family": family,
        "distribution_major_version": version.partition(".")[0], "architecture": machine,
    }  # fmt: skip


SYSTEMS = {
    "debian-12": recorded("Debian", "12.12", "Debian", "bookworm"),
    "debian-13": recorded("Debian", "13.1", "Debian", "trixie"),
    "ubuntu-22.04": recorded("Ubuntu", "22.04", "Debian", "jammy"),
    "ubuntu-24.04": recorded("Ubuntu", "24.04", "Debian", "noble"),
    "ubuntu-arm": recorded("Ubuntu", "24.04", "Debian", "noble", "aarch64"),
    "rhel-9": recorded("RedHat", "9.6", "RedHat", "Plow"),
    "rocky-9": recorded("Rocky", "9.6", "RedHat", "Blue Onyx"),
    "fedora-42": recorded("Fedora", "42", "RedHat", ""),
    "sles-15": recorded("SLES", "15.6", "Suse", "6"),
    "leap-15": recorded("openSUSE Leap", "15.6", "Suse", "6"),
    "arch": recorded("Archlinux", "rolling", "Archlinux", ""),
}
TOOLKIT = ["nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1"]


@pytest.mark.parametrize(
    ("system", "manager", "pin", "url"),
    [
        ("debian-12", "apt", "=", "stable/deb/amd64"),
        ("ubuntu-24.04", "apt", "=", "stable/deb/amd64"),
        ("ubuntu-arm", "apt", "=", "stable/deb/arm64"),
        ("rhel-9", "dnf", "-", "stable/rpm/x86_64"),
        ("rocky-9", "dnf", "-", "stable/rpm/x86_64"),
        ("fedora-42", "dnf", "-", "stable/rpm/x86_64"),
        ("sles-15", "zypper", "=", "stable/rpm/x86_64"),
        ("leap-15", "zypper", "=", "stable/rpm/x86_64"),
    ],
)
def test_the_four_packages_of_the_nvidia_toolkit_are_pinned_together(system: str, manager: str, pin: str, url: str) -> None:
    plan = user_space_plan(SYSTEMS[system], "nvidia", "vendor", version="1.19.3-1")
    assert plan["manager"] == manager
    assert plan["packages"] == [f"{name}{pin}1.19.3-1" for name in TOOLKIT]
    assert plan["repository"]["url"].endswith(url)
    assert plan["repository"]["key"].startswith("https://")
    assert plan["handlers"] == [{"name": "nvidia", "path": "/usr/bin/nvidia-container-runtime"}]


@pytest.mark.parametrize(
    ("system", "vendor", "source", "names"),
    [
        ("debian-12", "amd", "distribution", ["rocminfo", "rocm-smi"]),
        ("debian-13", "amd", "distribution", ["rocminfo", "rocm-smi", "amd-smi"]),
        ("ubuntu-24.04", "amd", "vendor", ["rocminfo", "rocm-smi-lib", "amd-smi-lib"]),
        ("debian-12", "intel", "distribution", ["libze1", "intel-opencl-icd", "clinfo"]),
        ("ubuntu-22.04", "intel", "distribution", ["intel-opencl-icd", "clinfo"]),
        ("ubuntu-24.04", "intel", "distribution", ["libze1", "libze-intel-gpu1", "intel-opencl-icd", "clinfo"]),
        ("fedora-42", "intel", "distribution", ["oneapi-level-zero", "intel-compute-runtime", "clinfo"]),
        ("rocky-9", "intel", "vendor", ["level-zero", "intel-level-zero-gpu", "intel-opencl", "clinfo"]),
    ],
)
def test_packages_without_a_pin_come_as_they_are(system: str, vendor: str, source: str, names: list[str]) -> None:
    plan = user_space_plan(SYSTEMS[system], vendor, source)
    assert plan["names"] == plan["packages"] == names


@pytest.mark.parametrize(
    ("system", "vendor", "url", "suite"),
    [
        ("ubuntu-24.04", "amd", "https://repo.radeon.com/rocm/apt/7.0.2", "noble"),
        ("rhel-9", "amd", "https://repo.radeon.com/rocm/el9/7.0.2/main", ""),
        ("sles-15", "amd", "https://repo.radeon.com/rocm/zyp/7.0.2/main", ""),
        ("ubuntu-22.04", "intel", "https://repositories.intel.com/gpu/ubuntu", "jammy"),
        ("rhel-9", "intel", "https://repositories.intel.com/gpu/rhel/9.6/unified", ""),
        ("sles-15", "intel", "https://repositories.intel.com/gpu/sles/15sp6/unified", ""),
    ],
)
def test_repositories_of_the_vendors(system: str, vendor: str, url: str, suite: str) -> None:
    repository = user_space_plan(SYSTEMS[system], vendor, "vendor")["repository"]
    assert (repository["url"], repository["suite"]) == (url, suite)


def test_a_mirror_replaces_what_it_names() -> None:
    mirror = {"url": "file:/mirror/{architecture}", "key": "/mirror/key.asc"}
    repository = user_space_plan(SYSTEMS["debian-12"], "nvidia", "vendor", repository=mirror)["repository"]
    assert (repository["url"], repository["key"], repository["suite"]) == ("file:/mirror/amd64", "/mirror/key.asc", "/")


@pytest.mark.parametrize(
    ("system", "vendor", "source", "message"),
    [
        ("debian-12", "nvidia", "distribution", "Debian 12.12: the source distribution has none. Use vendor or none."),
        ("debian-13", "amd", "vendor", "Use distribution or none."),
        ("rhel-9", "amd", "distribution", "Use vendor or none."),
        ("arch", "nvidia", "vendor", "Known families: Debian, RedHat, Suse."),
        ("debian-12", "acme", "vendor", "unknown vendor acme. Known vendors: nvidia, amd, intel."),
        ("debian-12", "amd", "cloud", "unknown source cloud"),
    ],
)  # fmt: skip
def test_what_cannot_be_installed_is_said_in_one_line(system: str, vendor: str, source: str, message: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        user_space_plan(SYSTEMS[system], vendor, source)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_is_installed_from_nowhere() -> None:
    plan = user_space_plan(SYSTEMS["arch"], "nvidia", "none")
    assert (plan["packages"], plan["repository"]) == ([], None)


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name != "arch"])
def test_every_vendor_has_packages_and_a_driver_everywhere(system: str) -> None:
    for vendor, record in VENDORS.items():
        assert user_space_plan(SYSTEMS[system], vendor, "none")["driver"]["packages"], (system, vendor)
        sources = [source for source, table in record.user_space.sets.items() if packages.choose(table, SYSTEMS[system])]
        assert sources, (system, vendor)
        for source in sources:
            plan = user_space_plan(SYSTEMS[system], vendor, source)
            assert plan["packages"]
            assert "{" not in "".join(map(str, (plan["repository"] or {}).values()))


@pytest.mark.parametrize(
    ("system", "vendor", "source"),
    [
        ("debian-13", "amd", "distribution"),
        ("rocky-9", "amd", "vendor"),
        ("debian-12", "nvidia", "vendor"),
        ("sles-15", "intel", "vendor"),
        ("fedora-42", "intel", "distribution"),
        ("arch", "amd", "none"),
    ],
)
def test_without_a_source_the_first_that_has_packages_counts(system: str, vendor: str, source: str) -> None:
    assert user_space_plan(SYSTEMS[system], vendor)["source"] == source
