# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Phase registration: is the vendor's plugin there, known to the kubelet, and alone?"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import List

from ansible_collections.gpuops.k8s.plugins.module_utils._core.checks import Check, fail, judge, skip
from ansible_collections.gpuops.k8s.plugins.module_utils._core.situation import Json, Row, Situation


def checks(situation: Situation) -> List[Check]:
    """All checks of the phase."""
    result = []
    for row in situation.rows:
        result += [_socket(row), _rollout(situation, row), _single(situation, row)]
    if situation.rows:
        result.append(skip("REG-RECOVER", "opt-in: it restarts the kubelet"))
    return result


def _socket(row: Row) -> Check:
    where: Json = {**row.subject, "evidence": [f"ledger/{row.node}"]}
    if row.ledger.get("source", "none") == "none":
        return fail("REG-SOCKET", "the kubelet's books could not be read on the node", **where)
    registered = row.ledger.get("registered", {})
    sockets = [name for name in row.ledger.get("sockets", []) if fnmatchcase(name, row.vendor.plugin.socket)]
    problem = ""
    if not registered.get(row.resource):
        problem = f"the kubelet knows no device of {row.resource}"
    elif not row.ledger.get("kubelet_socket", False):
        problem = "the kubelet's own socket is missing in the device-plugins folder"
    elif not sockets:
        problem = f"no socket {row.vendor.plugin.socket} in the kubelet's device-plugins folder"
    seen = {"devices": len(registered.get(row.resource, [])), "sockets": sockets}
    wanted = {"devices": row.expected, "sockets": [row.vendor.plugin.socket]}
    if not problem and seen["devices"] != row.expected:
        problem = f"the kubelet knows {seen['devices']} devices of {row.resource}, expected {row.expected}"
    return judge("REG-SOCKET", wanted, wanted if not problem else seen, problem=problem, **where)


def _claiming(situation: Situation, row: Row) -> List[Json]:
    """The plugin DaemonSets that claim the row's resource, or say only that they are the vendor's."""
    return [entry for entry in situation.plugins
            if row.resource in (entry.get("resources") or [])
            or (not entry.get("resources") and entry.get("vendor") == row.vendor.name)]  # fmt: skip


def _rollout(situation: Situation, row: Row) -> Check:
    claiming = _claiming(situation, row)
    here = [(entry, pod) for entry in claiming for pod in entry.get("pods", []) if pod.get("node") == row.node]
    where: Json = {**row.subject, "evidence": [f"plugin/{entry['namespace']}/{entry['name']}" for entry in claiming]}
    if not claiming:
        return fail("REG-ROLLOUT", f"no DaemonSet of {row.vendor.name}'s device plugin in the cluster",
                    hint="run the role gpuops.k8s.device_plugin, or the playbook gpuops.k8s.site", **where)  # fmt: skip
    if not here:
        names = ", ".join(f"{entry['namespace']}/{entry['name']}" for entry in claiming)
        return fail("REG-ROLLOUT", f"{names} has no pod on the node", expected=1, observed=0,
                    hint="compare the DaemonSet's node selector and tolerations with the node's labels and taints",
                    **where)  # fmt: skip
    ready = [pod for entry, pod in here if pod.get("ready")]
    reasons = [f"{pod.get('name')}: {pod.get('reason') or 'not ready'}" for entry, pod in here if not pod.get("ready")]
    return judge("REG-ROLLOUT", True, bool(ready) and not reasons, problem="; ".join(reasons), **where)


def _single(situation: Situation, row: Row) -> Check:
    here = [entry for entry in _claiming(situation, row)
            for pod in entry.get("pods", []) if pod.get("node") == row.node]  # fmt: skip
    names = sorted(f"{entry['namespace']}/{entry['name']}" for entry in here)
    where: Json = {**row.subject, "evidence": [f"plugin/{name}" for name in names] + [f"ledger/{row.node}"]}
    problem = ""
    if len(set(names)) > 1:
        problem = f"{' and '.join(sorted(set(names)))} both run a plugin for {row.resource} on the node"
    else:
        extra = _sockets_without_registration(situation, row)
        if extra:
            problem = f"sockets {', '.join(extra)} for fewer registered resources: a second plugin, or a leftover of one"
    return judge("REG-SINGLE", 1, max(2, len(set(names))) if problem else 1, problem=problem, **where)


def _sockets_without_registration(situation: Situation, row: Row) -> List[str]:
    """Socket files that are more than the resources registered through them; none when the numbers fit."""
    patterns = {vendor.plugin.socket for vendor in situation.vendors.values()}
    prefixes = tuple(vendor.stale_resource_prefix for vendor in situation.vendors.values() if vendor.stale_resource_prefix)
    sockets = row.ledger.get("sockets", [])
    registered = row.ledger.get("registered", {})
    mine = [name for name in sockets if fnmatchcase(name, row.vendor.plugin.socket)]
    prefix = row.vendor.stale_resource_prefix
    known = [name for name in registered if (prefix and name.startswith(prefix)) or name in row.vendor.resources.values()]
    if len(mine) > len(known):
        return sorted(mine)
    others = [name for name in sockets if not any(fnmatchcase(name, pattern) for pattern in patterns)]
    of_others = [name for name in registered if not name.startswith(prefixes)] if prefixes else []
    return sorted(others) if len(others) > len(of_others) else []
