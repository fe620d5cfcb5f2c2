# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drivers of a node and what in the system bears on them: user space, Secure Boot, a pending reboot."""

from __future__ import annotations

import re
from typing import List, Optional, Sequence, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core.records import DriverFacts, GpuRecord, Problem, problem
from ansible_collections.gpuops.k8s.plugins.module_utils._node import gpus as gpu_reader
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_REBOOT_FILES = ("/run/reboot-required", "/var/run/reboot-required", "/run/reboot-needed")
_VERSION = r"\d+(?:\.\d+)+"
NONE: DriverFacts = {"module": "", "version": "", "userspace_version": "", "mismatch": False, "flavor": ""}


def facts(root: Root, vendor: Vendor, found: Sequence[GpuRecord]) -> DriverFacts:
    """The vendor's driver as the files of the node show it."""
    bound = [gpu["driver"] for gpu in found if gpu["driver"] in vendor.resources]
    loaded = [name for name in vendor.resources if root.exists(f"/sys/module/{name}")]
    module = (bound or loaded or [""])[0]
    driver: DriverFacts = {
        "module": module,
        "version": gpu_reader.version(root, vendor, module) if module else "",
        "userspace_version": _userspace(root, vendor),
        "mismatch": False,
        "flavor": gpu_reader.flavor(root, vendor) if module else "",
    }
    driver["mismatch"] = mismatch(vendor, driver)
    return driver


def _userspace(root: Root, vendor: Vendor) -> str:
    for pattern in vendor.reading.library_links:
        for path in root.match(pattern):
            # The name of the library that programs load ends in its version.
            match = re.search(rf"\.so\.({_VERSION})$", root.link_name(path))
            if match:
                return match.group(1)
    for path in vendor.reading.userspace_files:
        match = re.search(_VERSION, root.read(path))
        if match:
            return match.group(0)
    return ""


def mismatch(vendor: Vendor, driver: DriverFacts) -> bool:
    """Whether kernel module and user space differ where they must not. Tools shorten versions, so 570.133 fits 570.133.07."""
    if not vendor.reading.userspace_must_match or not driver["version"] or not driver["userspace_version"]:
        return False
    pairs = zip(driver["version"].split("."), driver["userspace_version"].split("."))
    return any(one != other for one, other in pairs)


def mismatch_problem(vendor: Vendor, driver: DriverFacts) -> Problem:
    """What a person should do when kernel module and user space differ."""
    message = (
        f"{vendor.title}: the loaded module {driver['module']} is of version {driver['version'] or 'unknown'}, "
        f"the libraries on the node are of version {driver['userspace_version'] or 'another'}"
    )
    hint = f"Drain the node and reboot it, or unload {driver['module']} and load it anew; keep automatic updates off it."
    return problem("driver_library_mismatch", driver["module"], message, hint)


def secure_boot(root: Root) -> Optional[bool]:
    """Whether the firmware lets only signed kernel modules load, None if that cannot be read."""
    if not root.exists("/sys/firmware/efi"):
        return False
    # Four bytes of attributes, then the value.
    value = root.read_bytes(_SECURE_BOOT)
    return value[4] == 1 if len(value) == 5 else None


def reboot_reason(root: Root) -> Tuple[str, str]:
    """The path that tells that the node waits for a reboot, and why it does; both "" if it does not."""
    for path in _REBOOT_FILES:
        if root.exists(path):
            packages = sorted(set(root.read(f"{path}.pkgs").split()))[:8]
            return path, f"{path} is there" + (f" (packages {', '.join(packages)})" if packages else "")
    running = root.read("/proc/sys/kernel/osrelease")
    installed = root.names("/lib/modules")
    # In a container there may be no modules at all, which says nothing.
    if running and installed and running not in installed:
        return "/lib/modules", f"kernel {running} runs, and its modules are gone: {', '.join(installed[-3:])} is installed"
    return "", ""


def system_problems(vendor: Vendor, gpus: List[GpuRecord], driver: DriverFacts, secured: Optional[bool]) -> List[Problem]:
    """What of this stands in the way of the GPUs."""
    problems = [mismatch_problem(vendor, driver)] if driver["mismatch"] else []
    undriven = [gpu["pci_address"] for gpu in gpus if gpu["state"] == "no_driver"]
    if undriven and secured and not driver["module"]:
        what = f"{vendor.title}: Secure Boot is on and no driver is loaded for {', '.join(undriven)}"
        hint = "The kernel refuses modules that are not signed: use signed packages, enrol the key, or turn Secure Boot off."
        problems.append(problem("secure_boot", undriven[0], what, hint))
    return problems
