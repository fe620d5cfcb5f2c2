# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI specifications of a node: those of others are looked at, ours is made from facts or by the vendor's program."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.gpuops.k8s.plugins.module_utils._core import cdi
from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._node import tools
from ansible_collections.gpuops.k8s.plugins.module_utils._node.files import Root
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import Vendor

# Where containerd and CRI-O look; names in the second win over those in the first.
FOLDERS = ("/etc/cdi", "/var/run/cdi")
# A YAML file is searched, not parsed: nodes have no parser for it.
_YAML_KIND = re.compile(r"^[\"']?kind[\"']?:\s*[\"']?([^\s\"']+)", re.MULTILINE)
_YAML_VERSION = re.compile(r"^[\"']?cdiVersion[\"']?:", re.MULTILINE)
_YAML_NODE = re.compile(r"^\s*(?:-\s+)?path:\s*[\"']?(/dev/[^\s\"']+)", re.MULTILINE)


@dataclass(frozen=True)
class Request:
    """What a specification is to hold; C(generator) is auto, builtin or program."""

    gpus: Sequence[Mapping[str, Any]]
    naming: Sequence[str] = cdi.NAMINGS
    groups: Sequence[int] = ()
    generator: str = "auto"
    disabled_hooks: Sequence[str] = ()
    timeout: float = 60


@dataclass
class Made:
    """A specification, what made it (builtin or the program's name) and what is not in it, with reasons."""

    spec: cdi.Spec
    generator: str
    left_out: List[Dict[str, str]] = field(default_factory=list)


def text_of(spec: cdi.Spec) -> str:
    """The specification as it is written to its file."""
    return json.dumps(spec, indent=2) + "\n"


def make(root: Root, vendor: Vendor, request: Request, runner: tools.RunTool = tools.run) -> Made:
    """The specification of a vendor's GPUs on this node.

    Raises GpuOpsError if there is no GPU to hand over, a device node that all need is missing, or the program fails.
    """
    if vendor.user_space.cdi is None:
        raise GpuOpsError(f"Making a CDI specification for {vendor.title}: its GPUs have no CDI kind", "Name another vendor.")
    ready, left_out = _ready(root, vendor, request.gpus)
    if not ready:
        reasons = "; ".join(f"{entry['subject']}: {entry['reason']}" for entry in left_out) or "none was found"
        raise GpuOpsError(
            f"Making a CDI specification for {vendor.title}: no GPU is ready ({reasons})", "Mend the GPUs first."
        )
    command = vendor.user_space.cdi.generator
    if request.generator != "builtin" and command:
        answer = runner([*command, *_without_hooks(vendor, request.disabled_hooks)], request.timeout)
        if answer.state != "absent" or request.generator == "program":
            return Made(
                _generated(command[0], answer, vendor.user_space.cdi.kind, ready, request.naming), command[0], left_out
            )
    elif request.generator == "program":
        raise GpuOpsError(
            f"Making a CDI specification for {vendor.title}: it has no program for that", "Use generator: builtin."
        )
    whole = []
    for gpu in ready:
        if gpu.get("mig_mode") == "enabled":
            left_out.append({"subject": gpu["pci_address"], "reason": f"its instances can be described by {command[0]} alone"})
        else:
            whole.append(gpu)
    if not whole:
        raise GpuOpsError(
            f"Making a CDI specification for {vendor.title}: all GPUs are divided into instances", f"Install {command[0]}."
        )
    shared = [node for node in vendor.control_nodes if root.is_device(node)]
    return Made(cdi.build(vendor.user_space.cdi.kind, whole, request.naming, shared, request.groups), "builtin", left_out)


def survey(root: Root, own: str, kind: str) -> List[Dict[str, Any]]:
    """The specifications of others, each with path, kind, state and reason.

    C(state) is good, malformed, stale (a device node that it names is gone), clash (same kind in the folder of C(own), so
    that runtimes refuse the names) or shadow (same kind in the other folder, where one hides the other).
    """
    found = []
    for folder in FOLDERS:
        for name in root.names(folder):
            path = f"{folder}/{name}"
            if path != own and name.endswith((".json", ".yaml")):
                found.append(_judge(root, path, own, kind))
    return found


def _judge(root: Root, path: str, own: str, kind: str) -> Dict[str, Any]:
    their_kind, nodes, wrong = _read(root.read(path))
    gone = [node for node in nodes if not root.is_device(node)]
    state, reason = "good", ""
    if wrong:
        state, reason = "malformed", wrong
    elif their_kind == kind and os.path.dirname(path) == os.path.dirname(own):
        state, reason = "clash", f"it has the kind {kind} too"
    elif gone:
        state, reason = "stale", f"it names {gone[0]}, which is not there"
    elif their_kind == kind:
        state, reason = "shadow", f"it has the kind {kind} too, and names in {FOLDERS[1]} win"
    return {"path": path, "kind": their_kind, "state": state, "reason": reason}


def _read(text: str) -> Tuple[str, List[str], str]:
    """Kind, device nodes and what is wrong with the text of a specification."""
    try:
        spec = json.loads(text)
    except ValueError:
        kind = _YAML_KIND.search(text)
        if text.startswith("{") or not kind or not _YAML_VERSION.search(text):
            return "", [], "it is neither JSON nor YAML with cdiVersion and kind"
        return kind.group(1), _YAML_NODE.findall(text), ""
    wrong = cdi.problems(spec)
    kind_text = str(spec.get("kind", "")) if isinstance(spec, dict) else ""
    return kind_text, [] if wrong else cdi.device_nodes(spec), "; ".join(wrong)


def _ready(
    root: Root, vendor: Vendor, gpus: Sequence[Mapping[str, Any]]
) -> Tuple[List[Mapping[str, Any]], List[Dict[str, str]]]:
    ready, left_out = [], []
    for gpu in gpus:
        if gpu.get("vendor") != vendor.name:
            continue
        gone = [node for node in gpu.get("device_nodes") or [] if not root.is_device(node)]
        if not gpu.get("ready"):
            left_out.append({"subject": gpu["pci_address"], "reason": f"its state is {gpu.get('state', 'unknown')}"})
        elif gone or not gpu.get("device_nodes"):
            left_out.append({"subject": gpu["pci_address"], "reason": f"{', '.join(gone) or 'its device node'} is not there"})
        else:
            ready.append(gpu)
    for node in vendor.required_nodes:
        if ready and not root.is_device(node):
            raise GpuOpsError(
                f"Making a CDI specification for {vendor.title}: {node} is not there, and no program works without it",
                vendor.reading.missing_nodes_hint or "Load the driver.",
            )
    return ready, left_out


def _without_hooks(vendor: Vendor, hooks: Sequence[str]) -> List[str]:
    argument = vendor.user_space.cdi.disable_hook if vendor.user_space.cdi else ""
    return [argument.format(value=hook) for hook in hooks] if argument else []


def _generated(
    program: str, answer: tools.ToolAnswer, kind: str, gpus: Sequence[Mapping[str, Any]], naming: Sequence[str]
) -> cdi.Spec:
    hint = f"Mend {program}, or use generator: builtin, whose containers get device nodes and no libraries."
    attempt = f"Making a CDI specification with {program}"
    if answer.state != "ok":
        raise GpuOpsError(f"{attempt}: {answer.detail}", hint)
    try:
        spec = json.loads(answer.output)
    except ValueError as error:
        raise GpuOpsError(f"{attempt}: it printed no JSON ({error})", hint) from error
    wrong = cdi.problems(spec)
    if not wrong and spec["kind"] != kind:
        wrong = [f"its kind is {spec['kind']}, not {kind}"]
    if wrong:
        raise GpuOpsError(f"{attempt}: it printed a specification that runtimes refuse: {'; '.join(wrong)}", hint)
    try:
        return cdi.rename(spec, gpus, naming)
    except GpuOpsError as error:
        raise GpuOpsError(f"{attempt}: {error.message}", hint) from error
