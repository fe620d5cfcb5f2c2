# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vocabulary of verification: phases, check ids with title and next step, and the record of one check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, NamedTuple, Sequence

PASS, FAIL, SKIP = "pass", "fail", "skip"
PHASES = (
    "enumeration", "registration", "advertisement", "admission", "scheduling", "assignment", "labels", "cleanup",
)  # fmt: skip


class CheckKind(NamedTuple):
    """What is known of a check id before anything ran: its phase, what it shows, what to do when it fails."""

    phase: str
    title: str
    hint: str


_PLUGIN_LOG = "read the device plugin's log on this node: kubectl -n <namespace> logs <plugin pod>"
CHECKS: Dict[str, CheckKind] = {
    "ENUM-COUNT": CheckKind(
        "enumeration", "The inventory, the cluster and the PCI bus agree on the GPUs",
        "compare `lspci -nn` on the node with the inventory (gpu_expected_gpus, gpu_node_name)"),
    "ENUM-MODEL": CheckKind(
        "enumeration", "Every GPU's model is known", "report the PCI id, or add the model to the vendor's catalogue"),
    "ENUM-DRIVER": CheckKind(
        "enumeration", "Every GPU is bound to the driver that serves containers",
        "install or load the vendor's kernel driver, unbind nouveau, then run again"),
    "ENUM-RUNTIME": CheckKind(
        "enumeration", "The node's kernel side is ready for containers", "see the node's problems in the evidence"),
    "REG-SOCKET": CheckKind(
        "registration", "The kubelet knows the resource and the plugin's socket is in its folder", _PLUGIN_LOG),
    "REG-ROLLOUT": CheckKind(
        "registration", "A device plugin of the vendor is ready on the node",
        "kubectl -n <namespace> describe pod <plugin pod>; run the device_plugin role again"),
    "REG-SINGLE": CheckKind(
        "registration", "No two plugins claim one resource on the node",
        "remove one of the plugins (kubectl get daemonsets --all-namespaces), then delete its socket"),
    "REG-RECOVER": CheckKind("registration", "The plugin comes back after a kubelet restart", _PLUGIN_LOG),
    "ADV-CAPACITY": CheckKind("advertisement", "capacity = expected", _PLUGIN_LOG),
    "ADV-ALLOCATABLE": CheckKind("advertisement", "allocatable = expected", _PLUGIN_LOG),
    "ADV-HEALTH": CheckKind(
        "advertisement", "The node is Ready and schedulable and every device is healthy",
        "kubectl describe node <node>; uncordon it, or look for Xid, RAS or reset messages in the kernel log"),
    "ADV-NAMES": CheckKind(
        "advertisement", "No stale and no unexpected GPU resource on the node",
        "remove the old plugin and the resource from the node's status (capacity), or add the node's GPUs to the inventory"),
    "ADM-INTEGER": CheckKind("admission", "Half a GPU is refused", "check the API server's version and mutating webhooks"),
    "ADM-EQUAL": CheckKind(
        "admission", "Requests that differ from limits are refused", "check the API server's version and mutating webhooks"),
    "ADM-LIMIT-ONLY": CheckKind(
        "admission", "A limit alone becomes the request too", "look for a LimitRange or webhook that changes requests"),
    "ADM-QUOTA": CheckKind("admission", "The quota refuses one GPU too many", "use requests.<resource> as the quota's key"),
    "ADM-QUOTA-RELEASE": CheckKind("admission", "A finished pod gives its quota back", "kubectl describe resourcequota"),
    "SCH-OVER": CheckKind(
        "scheduling", "A pod that asks for one more than there is stays Pending with Insufficient",
        "look for a device advertised twice, or a scheduler that ignores the resource"),
    "SCH-SELECT": CheckKind(
        "scheduling", "A pod that selects the node by label lands there, on a node without GPUs it stays Pending",
        "kubectl describe pod <probe pod>; check the node's labels and taints"),
    "SCH-TAINT": CheckKind("scheduling", "A pod that tolerates nothing stays away from tainted GPU nodes", "check the taints"),
    "ASG-EACH": CheckKind("assignment", "One pod a device: every device was used once", _PLUGIN_LOG),
    "ASG-ALL": CheckKind("assignment", "One pod takes all devices of the node", _PLUGIN_LOG),
    "ASG-EXCLUSIVE": CheckKind(
        "assignment", "No device is given to two pods at once",
        "the plugin announces one device under two ids: compare its device list with the hardware"),
    "ASG-NONE": CheckKind(
        "assignment", "A pod that asks for no GPU sees none",
        "look for a default container runtime, NVIDIA_VISIBLE_DEVICES or hostPath that gives devices to every pod"),
    "ASG-OPEN": CheckKind(
        "assignment", "The pod opens exactly the device nodes of the devices it was given",
        "check the device nodes' modes and the driver on the node, and what the plugin's Allocate answers"),
    "ASG-LEDGER": CheckKind(
        "assignment", "Kubelet, pod and node name the same device",
        "read the kubelet's books with the module kubelet_device_facts; restart the plugin, then the kubelet"),
    "LBL-PRESENT": CheckKind("labels", "The vendor's labels are on the node", "run the node_feature_discovery role"),
    "LBL-TRUE": CheckKind("labels", "The labels say what the hardware is", "compare the labels with gpu_facts"),
    "CLN-RELEASE": CheckKind(
        "cleanup", "Devices are free again after their pods are gone", "look for pods stuck in Terminating on the node"),
    "CLN-REUSE": CheckKind("cleanup", "Released devices can be used again", _PLUGIN_LOG),
    "CLN-RESIDUE": CheckKind(
        "cleanup", "No probe object is left", "kubectl delete pods --all-namespaces -l app.kubernetes.io/component=gpu-probe"),
}  # fmt: skip


@dataclass
class Check:
    """One check that was made, or left out with a reason. Times in seconds."""

    id: str
    status: str
    node: str = ""
    resource: str = ""
    device: str = ""
    expected: Any = None
    observed: Any = None
    reason: str = ""
    hint: str = ""
    seconds: float = 0.0
    evidence: List[str] = field(default_factory=list)

    @property
    def phase(self) -> str:
        """The phase that the id belongs to."""
        return CHECKS[self.id].phase

    def as_record(self) -> Dict[str, Any]:
        """The check as it stands in evidence.json."""
        return {
            "id": self.id, "phase": self.phase, "node": self.node, "resource": self.resource, "device": self.device,
            "status": self.status, "expected": self.expected, "observed": self.observed, "reason": self.reason,
            "hint": self.hint, "seconds": round(self.seconds, 3), "evidence": list(self.evidence),
        }  # fmt: skip


def judge(check_id: str, expected: Any, observed: Any, *, problem: str = "", hint: str = "", **subject: Any) -> Check:
    """A check that passes when I(observed) equals I(expected) and no I(problem) is named.

    I(subject) takes node, resource, device, seconds and evidence. A failed check carries a reason and a next step.
    """
    if not problem and observed == expected:
        return Check(check_id, PASS, expected=expected, observed=observed, **subject)
    reason = problem or f"expected {_show(expected)}, found {_show(observed)}"
    return Check(check_id, FAIL, expected=expected, observed=observed, reason=reason,
                 hint=hint or CHECKS[check_id].hint, **subject)  # fmt: skip


def fail(check_id: str, reason: str, *, hint: str = "", expected: Any = None, observed: Any = None, **subject: Any) -> Check:
    """A failed check; see judge()."""
    return judge(check_id, expected, observed, problem=reason, hint=hint, **subject)


def skip(check_id: str, reason: str, **subject: Any) -> Check:
    """A check that was not made, and why. It never counts as passed.

    Raises:
        ValueError: Without a reason nothing may be left out.
    """
    if not reason:
        raise ValueError(f"{check_id}: a skipped check needs a reason")
    return Check(check_id, SKIP, reason=reason, **subject)


def totals(checks: Sequence[Check]) -> Dict[str, int]:
    """How many checks passed, failed and were left out."""
    return {status: sum(1 for check in checks if check.status == status) for status in (PASS, FAIL, SKIP)}


def _show(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_show(item) for item in value) + "]" if value else "none"
    return "nothing" if value in (None, "") else str(value)
