# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be made to break on a node, and how it is mended. Plugin faults are the plugin's own; the rest is here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuops_lab import shared_facts
from gpuops_lab.command import run
from gpuops_lab.errors import LabError
from gpuops_lab.node import start
from gpuops_lab.place import Place
from gpuops_lab.plugin import faults as plugin_faults

# A character device that no driver serves: opening it fails with ENXIO.
DEAD_MAJOR, DEAD_MINOR = 240, 4000
_SLOWEST = 180  # seconds; systemd alone gives a unit 90 to stop
_DROP_IN = "/etc/containerd/conf.d/gpuops-fault.toml"
_BASE_SPEC = "/etc/containerd/gpuops-fault-spec.json"
RECORD = "faults.json"


@dataclass(frozen=True)
class Fault:
    """One fault on one node."""

    kind: str
    resource: str = "*"
    device: str = ""


@dataclass(frozen=True)
class Target:
    """A node of a running lab."""

    place: Place
    node: str

    @property
    def folder(self) -> Path:
        """The node's run-time folder."""
        return self.place.folder / "nodes" / self.node

    def device_nodes(self) -> list[dict[str, object]]:
        """The node's simulated device nodes, as device_nodes.json lists them, without links."""
        entries = json.loads((self.folder / "hardware" / "device_nodes.json").read_text(encoding="utf-8"))
        return [entry for entry in entries if "link" not in entry]

    def offered(self) -> dict[str, list[str]]:
        """Extended resource to the device ids that its plugin has offered, from the kubelet's checkpoint."""
        path = self.folder / "kubelet" / "device-plugins" / "kubelet_internal_checkpoint"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # no plugin yet, or the kubelet is writing
            return {}
        registered: dict[str, list[str] | None] = document["Data"]["RegisteredDevices"] or {}
        return {resource: list(ids or []) for resource, ids in registered.items()}

    def inside(self, *words: str, what: str, stdin: str | None = None) -> str:
        """Run a program inside the node."""
        init = start.init_process(self.place, self.node)
        if init is None:
            raise LabError(f"node {self.node} is not running", "see `gpuops-lab status`")
        return run(["nsenter", "-t", str(init), "-a", *words], what=f"{what} on {self.node}", stdin=stdin, timeout=_SLOWEST)


@dataclass(frozen=True)
class NodeKind:
    """A fault of the node itself."""

    description: str
    apply: Callable[[Target, Fault], None]
    clear: Callable[[Target, Fault], None]


def _chosen_device(target: Target, fault: Fault) -> dict[str, object]:
    """The device node that a fault is about: the named one, else the last that belongs to a single GPU."""
    nodes = target.device_nodes()
    single = [entry for entry in nodes if str(entry["path"])[-1].isdigit() and "card" not in str(entry["path"])]
    wanted = [entry for entry in nodes if entry["path"] == fault.device] if fault.device else single[-1:]
    if not wanted:
        names = ", ".join(str(entry["path"]) for entry in nodes) or "none"
        raise LabError(f"node {target.node} has no device node {fault.device or 'of a GPU'}", f"it has: {names}")
    return wanted[0]


def _make_node(target: Target, path: str, major: object, minor: object, mode: object) -> None:
    target.inside("rm", "-f", path, what=f"remove {path}")
    target.inside("mknod", "-m", str(mode), path, "c", str(major), str(minor), what=f"make {path}")


def _kill_device(target: Target, fault: Fault) -> None:
    entry = _chosen_device(target, fault)
    _make_node(target, str(entry["path"]), DEAD_MAJOR, DEAD_MINOR, entry["mode"])


def _revive_device(target: Target, fault: Fault) -> None:
    entry = _chosen_device(target, fault)
    _make_node(target, str(entry["path"]), entry["major"], entry["minor"], entry["mode"])


def _leak(target: Target, fault: Fault) -> None:
    """Give every container of the node a GPU's device node, as a runtime with a wrong default does."""
    entry = _chosen_device(target, fault)
    spec = json.loads(target.inside("ctr", "oci", "spec", what="read the runtime's default spec"))
    device = {"path": entry["path"], "type": "c", "major": entry["major"], "minor": entry["minor"], "fileMode": 0o666}
    spec["linux"].setdefault("devices", []).append({**device, "uid": 0, "gid": 0})
    rule = {"allow": True, "type": "c", "major": entry["major"], "minor": entry["minor"], "access": "rwm"}
    spec["linux"].setdefault("resources", {}).setdefault("devices", []).append(rule)
    main = target.inside("cat", "/etc/containerd/config.toml", what="read the containerd configuration")
    runtime = 'runtime_type = "io.containerd.runc.v2"'
    table = main[main.index("[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]") :]
    drop_in = "version = 3\n" + table.replace(runtime, f'{runtime}\n  base_runtime_spec = "{_BASE_SPEC}"')
    target.inside("tee", _BASE_SPEC, what="write a runtime spec", stdin=json.dumps(spec))
    target.inside("tee", _DROP_IN, what="write a containerd drop-in", stdin=drop_in)
    target.inside("systemctl", "restart", "containerd", what="restart containerd")


def _stop_leak(target: Target, _: Fault) -> None:
    target.inside("rm", "-f", _DROP_IN, _BASE_SPEC, what="remove the containerd drop-in")
    target.inside("systemctl", "restart", "containerd", what="restart containerd")


NODE_KINDS = {
    "device-dead": NodeKind("a GPU's device node is there and cannot be opened", _kill_device, _revive_device),
    "leak-to-all": NodeKind("every container sees a GPU's device node without asking for it", _leak, _stop_leak),
}


def descriptions() -> dict[str, str]:
    """Every kind with what it does."""
    own = {name: kind.description for name, kind in NODE_KINDS.items()}
    return dict(sorted({**plugin_faults.KINDS, **own}.items()))


def read_applied(target: Target) -> list[Fault]:
    """The faults that a node has now."""
    try:
        return [Fault(**entry) for entry in json.loads((target.folder / RECORD).read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise LabError(
            f"cannot read the faults of node {target.node}: {error}", "mend the node with `gpuops-lab down` and `up`"
        ) from error


def _write_applied(target: Target, faults: list[Fault]) -> None:
    (target.folder / RECORD).write_text(json.dumps([vars(fault) for fault in faults]), encoding="utf-8")
    own: dict[str, list[dict[str, str]]] = {}
    for fault in faults:
        if fault.kind not in NODE_KINDS:
            entry = {"kind": fault.kind, **({"device": fault.device} if fault.device else {})}
            own.setdefault(fault.resource, []).append(entry)
    plugin_faults.write(target.folder / "kubelet" / "device-plugins", own)


def _check_effect(target: Target, fault: Fault, broken: set[str]) -> None:
    """Refuse a fault of a plugin that would change nothing, for a test with it could not fail.

    Devices in I(broken) have a fault already, so the kubelet may not know them at the moment.
    """
    if not target.device_nodes():
        raise LabError(
            f"node {target.node} has no GPU whose plugin could break", "choose a node of `gpuops-lab status` with GPUs"
        )
    offered = target.offered()
    if not offered:
        return  # no plugin has registered yet: the fault waits for it
    chosen = offered if fault.resource == "*" else {name: ids for name, ids in offered.items() if name == fault.resource}
    if not chosen:
        raise LabError(f"node {target.node} offers no {fault.resource}", f"it offers: {', '.join(sorted(offered))}")
    ids = [device for each in chosen.values() for device in each]
    shared = tuple(f"{fault.device}{separator}" for separator in ("::", "-"))
    if fault.device and fault.device not in (*ids, *broken) and not any(device.startswith(shared) for device in ids):
        raise LabError(
            f"no plugin of node {target.node} offers the device {fault.device}", f"it offers: {', '.join(sorted(ids))}"
        )


def apply(target: Target, fault: Fault) -> None:
    """Break something on a node; the same fault twice is a no-op.

    Raises:
        LabError: Unknown kind, no such device, or the node does not run.
    """
    if fault.kind not in descriptions():
        raise LabError(f"unknown fault {fault.kind!r}", f"use one of: {', '.join(descriptions())}")
    known = {resource for vendor in shared_facts.vendors().values() for resource in vendor.resources}
    if fault.resource != "*" and fault.resource not in known:
        raise LabError(f"no device plugin offers {fault.resource!r}", f"use one of: {', '.join(sorted(known))}")
    applied = read_applied(target)
    if fault in applied:
        return
    if fault.kind in NODE_KINDS:
        NODE_KINDS[fault.kind].apply(target, fault)
    else:
        _check_effect(target, fault, {entry.device for entry in applied})
    _write_applied(target, [*applied, fault])


def clear(target: Target) -> int:
    """Mend everything on a node; returns how many faults there were."""
    applied = read_applied(target)
    for fault in applied:
        if fault.kind in NODE_KINDS:
            NODE_KINDS[fault.kind].clear(target, fault)
    _write_applied(target, [])
    return len(applied)
