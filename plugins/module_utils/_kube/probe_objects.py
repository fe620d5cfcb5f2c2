# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe's objects as plain dictionaries: namespace, pods, and the script that runs in them. Pure.

A probe pod lists every GPU device node that it can see, opens each for reading and writing, reports, and then holds on to
what it was given until it is deleted. It needs no privilege and no vendor library.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpuops.k8s.plugins.module_utils._kube import labels
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

Json = Dict[str, Any]
ANY_PROBE = f"{labels.MANAGED_BY}={labels.MANAGER},{labels.COMPONENT}={labels.PROBE}"
CONTAINER = "probe"

# $1: names of environment variables; $2: patterns of device nodes; $3: control nodes; each separated by spaces.
# The redirection runs in a shell of its own, because a failed one would end this one.
SCRIPT = r"""
trap 'exit 0' TERM INT
look() {
  for path in $2; do
    [ -e "$path" ] || [ -L "$path" ] || continue
    case $path in *[!A-Za-z0-9._/:-]*) echo "$1 refused unreadable-name"; continue ;; esac
    if [ ! -c "$path" ]; then
      echo "$1 refused $path not a character device"
    elif message=$( (exec 3<>"$path") 2>&1 ); then
      echo "$1 opened $path $(stat -L -c %t:%T "$path" 2>/dev/null)"
    else
      echo "$1 refused $path ${message##*: }"
    fi
  done
}
echo 'gpuops-probe 1'
for name in $1; do
  eval "value=\${$name-}"
  # A value with other characters could write lines of its own into this report.
  case $value in *[!A-Za-z0-9._,:/@=+-]*) value=unreadable ;; esac
  [ -z "$value" ] || echo "env $name $value"
done
look device "$2"
look control "$3"
echo 'end'
while :; do
  sleep 3600 &
  wait $!
done
"""


def script_arguments(vendors: Mapping[str, Vendor]) -> List[str]:
    """The script's three arguments: what to look for, of all vendors, since a pod may see what it did not ask for."""

    def joined(lists: List[Sequence[str]]) -> str:
        return " ".join(dict.fromkeys(item for each in lists for item in each if item))

    known = list(vendors.values())
    return [
        joined([[vendor.visible_env] for vendor in known]),
        joined([vendor.device_globs for vendor in known]),
        joined([vendor.control_nodes for vendor in known]),
    ]


def namespace(name: str) -> Json:
    """The namespace that the probe makes for itself where there is none."""
    marks = {
        labels.MANAGED_BY: labels.MANAGER,
        labels.COMPONENT: labels.PROBE,
        "pod-security.kubernetes.io/enforce": "baseline",
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}}


def run_selector(run_id: str) -> str:
    """Label selector of one run's objects."""
    return f"{ANY_PROBE},{labels.PROBE_RUN}={run_id}"


def pod(
    name: str,
    run_id: str,
    *,
    image: str,
    arguments: Sequence[str],
    limits: Optional[Mapping[str, str]] = None,
    requests: Optional[Mapping[str, str]] = None,
    node: str = "",
    hostname: str = "",
    taints: Sequence[Mapping[str, str]] = (),
    deadline: int = 900,
    runtime_class: str = "",
    user: int = 0,
    groups: Sequence[int] = (),
) -> Json:
    """One probe pod.

    I(node) ties it to a node by name and I(hostname) by label; the scheduler places it either way, so that scheduling and the
    kubelet's admission are part of what is shown. I(deadline) is the number of seconds after which it ends by itself.
    With I(user) it runs as that user, and as a member of I(groups) of the node; 0 leaves the image's own.
    """
    resources: Json = {"limits": {"memory": "32Mi", **(limits or {})}}
    resources["requests"] = {"memory": "8Mi", "cpu": "1m", **(requests or {})}
    spec: Json = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 2,
        "activeDeadlineSeconds": deadline,
        "tolerations": _tolerations(taints),
        "containers": [
            {
                "name": CONTAINER,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sh", "-c", SCRIPT, labels.PROBE],
                "args": list(arguments),
                "resources": resources,
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "privileged": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            }
        ],
    }
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    if user:
        spec["securityContext"] = {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "supplementalGroups": list(groups),
        }
    if hostname:
        spec["nodeSelector"] = {labels.HOSTNAME: hostname}
    elif node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    marks = {
        labels.MANAGED_BY: labels.MANAGER,
        labels.COMPONENT: labels.PROBE,
        labels.NAME: labels.PROBE,
        labels.PROBE_RUN: run_id,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": marks}, "spec": spec}


def _tolerations(taints: Sequence[Mapping[str, str]]) -> List[Json]:
    """Tolerations for the node's own taints, so that a tainted GPU node is verified like every other."""
    return [
        {"key": taint["key"], "operator": "Equal", "value": taint.get("value", ""), "effect": taint.get("effect", "")}
        if taint.get("value")
        else {"key": taint["key"], "operator": "Exists", "effect": taint.get("effect", "")}
        for taint in taints
        # Not Ready, unreachable and cordoned are the node controller's: such a node is not probed at all.
        if not taint["key"].startswith("node.kubernetes.io/")
    ]


def parse_report(log: str) -> Json:
    """A pod's log as complete (ran to the end), env, devices and control (path, opened, number, error).

    The number is that of the device, major:minor in hex, "" where the image has no C(stat).
    """
    report: Json = {"complete": False, "env": {}, "devices": [], "control": []}
    lines = log.split("\n")  # and at nothing else that Unicode calls a line break
    if "gpuops-probe 1" not in lines:
        return report
    for line in lines[lines.index("gpuops-probe 1") + 1 :]:
        word, _sep, rest = line.partition(" ")
        if word == "end" and not rest:
            report["complete"] = True
            break
        if word == "env":
            name, _sep, value = rest.partition(" ")
            report["env"][name] = value
        elif word in ("device", "control"):
            outcome, _sep, tail = rest.partition(" ")
            path, _sep, error = tail.partition(" ")
            opened = outcome == "opened"
            entry = {"path": path, "opened": opened, "number": error if opened else "", "error": "" if opened else error}
            report["devices" if word == "device" else "control"].append(entry)
    return report
