# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that make a Debian tree a Kubernetes node: identity, keys, runtime, kubelet, units."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import yaml

from gpuops_lab import control_groups
from gpuops_lab.control_plane import ControlPlane, write_kubeconfig
from gpuops_lab.pki import Identity, new_ssh_key
from gpuops_lab.place import Place
from gpuops_lab.topology import NodeSpec

PAUSE_IMAGE = "gpuops.lab/pause:1"

_UNITS = {
    "containerd.service": """\
[Unit]
Description=containerd container runtime
After=network.target
StartLimitIntervalSec=0

[Service]
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=1
LimitNOFILE=infinity
ExecStart=/usr/local/bin/containerd --config /etc/containerd/config.toml

[Install]
WantedBy=multi-user.target
""",
    "kubelet.service": """\
[Unit]
Description=Kubernetes kubelet
After=containerd.service
Wants=containerd.service
StartLimitIntervalSec=0

[Service]
Delegate=yes
Restart=always
RestartSec=1
EnvironmentFile=/etc/default/kubelet
ExecStart=/usr/local/bin/kubelet --config /etc/kubernetes/kubelet.yaml --kubeconfig /etc/kubernetes/kubelet.conf $KUBELET_ARGS

[Install]
WantedBy=multi-user.target
""",
    "kube-proxy.service": """\
[Unit]
Description=Kubernetes service proxy
After=network.target
StartLimitIntervalSec=0

[Service]
Restart=always
RestartSec=1
EnvironmentFile=/etc/default/kubelet
Environment=GOGC=50
ExecStart=/usr/local/bin/kube-proxy --proxy-mode nftables --kubeconfig /etc/kubernetes/kube-proxy.conf \\
  --hostname-override ${NODE_NAME} --cluster-cidr ${CLUSTER_RANGE} --conntrack-max-per-core 0 --conntrack-min 0 \\
  --conntrack-tcp-timeout-established 0s --conntrack-tcp-timeout-close-wait 0s

[Install]
WantedBy=multi-user.target
""",
}


@dataclass(frozen=True)
class NodePlan:
    """All that decides one node's files."""

    place: Place
    spec: NodeSpec
    position: int

    @property
    def folder(self) -> Path:
        """The node's run-time folder."""
        return self.place.folder / "nodes" / self.spec.name

    @property
    def address(self) -> str:
        """The node's address on the lab's bridge."""
        return self.place.node_address(self.position)

    @property
    def control_group(self) -> str:
        """The node's control group."""
        return f"{self.place.control_group}/{self.spec.name}"


def write(plan: NodePlan, control_plane: ControlPlane, ssh_public_key: str) -> str:
    """Write a node's own files into the upper layer of its root and return its SSH host key line."""
    upper = plan.folder / "upper"
    name = plan.spec.name
    _identity(plan, upper)
    host_key = _ssh(upper, ssh_public_key, plan.spec.hostname)
    _put(upper, "etc/apt/sources.list", "# This node reaches no mirror; see /usr/share/gpuops-packages.\n")
    _put(upper, "etc/containerd/config.toml", containerd_configuration())
    _put(upper, "etc/containerd/conf.d/.keep", "")
    _put(upper, "etc/cni/net.d/10-lab.conflist", _cni(plan))
    certificate, key = control_plane.authority.issue(
        f"kubelet-{name}", Identity(f"system:node:{name}", "system:nodes", (plan.address,), (name,))
    )
    _put(upper, "etc/kubernetes/pki/kubelet.crt", certificate.read_text(encoding="utf-8"))
    _put(upper, "etc/kubernetes/pki/kubelet.key", key.read_text(encoding="utf-8"), 0o600)
    _put(upper, "etc/kubernetes/pki/ca.crt", control_plane.authority.certificate.read_text(encoding="utf-8"))
    users = {
        "kubelet": Identity(f"system:node:{name}", "system:nodes"),
        "kube-proxy": Identity("system:kube-proxy", "system:node-proxier"),
    }
    for user, identity in users.items():
        path = upper / "etc/kubernetes" / f"{user}.conf"
        write_kubeconfig(control_plane.authority, f"{user}-{name}-client", identity, control_plane.server, path)
    _put(upper, "etc/kubernetes/kubelet.yaml", yaml.safe_dump(_kubelet(plan), sort_keys=False))
    _put(upper, "etc/default/kubelet", _kubelet_environment(plan))
    _units(upper)
    return host_key


def containerd_configuration() -> str:
    """The runtime's main configuration file; drop-ins beside it are read too."""
    # On v1 hierarchies runc freezes a container's group around each change that it leaves to systemd, and often fails to.
    systemd_groups = "true" if control_groups.is_unified() else "false"
    return f"""\
version = 3
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"

  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.cri.v1.runtime']
  # Some hosts withhold CAP_SYS_RESOURCE, without which a lower score cannot be set.
  restrict_oom_score_adj = true
  enable_cdi = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    SystemdCgroup = {systemd_groups}
"""


def _put(upper: Path, path: str, text: str, mode: int = 0o644) -> None:
    target = upper / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    target.chmod(mode)


def _identity(plan: NodePlan, upper: Path) -> None:
    hostname = plan.spec.hostname
    _put(upper, "etc/hostname", f"{hostname}\n")
    _put(upper, "etc/hosts", f"127.0.0.1 localhost\n{plan.address} {hostname}\n")
    _put(upper, "etc/machine-id", os.urandom(16).hex() + "\n")
    _put(upper, "etc/resolv.conf", Path("/etc/resolv.conf").read_text(encoding="utf-8"))


def _ssh(upper: Path, user_key: str, hostname: str) -> str:
    private, public = new_ssh_key(f"root@{hostname}")
    _put(upper, "etc/ssh/ssh_host_ed25519_key", private, 0o600)
    _put(upper, "etc/ssh/ssh_host_ed25519_key.pub", public)
    _put(upper, "root/.ssh/authorized_keys", user_key, 0o600)
    (upper / "root").chmod(0o700)
    (upper / "root/.ssh").chmod(0o700)
    return public


def _cni(plan: NodePlan) -> str:
    ranges = f'[[{{"subnet": "{plan.place.pod_range(plan.position)}"}}]]'
    return f"""\
{{"cniVersion": "1.0.0", "name": "lab", "plugins": [
  {{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
    "ipam": {{"type": "host-local", "ranges": {ranges}, "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
  {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}
"""


def _kubelet(plan: NodePlan) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "systemd" if control_groups.is_unified() else "cgroupfs",
        "cgroupRoot": "/",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "address": plan.address,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": "/etc/kubernetes/pki/kubelet.crt",
        "tlsPrivateKeyFile": "/etc/kubernetes/pki/kubelet.key",
        "registerWithTaints": [_taint(text) for text in plan.spec.taints],
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        # Device changes reach the API with the next status, which by default takes up to 10 s.
        "nodeStatusUpdateFrequency": "1s",
        "makeIPTablesUtilChains": False,
        "maxPods": 110,
    }


def _taint(text: str) -> dict[str, str]:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _kubelet_environment(plan: NodePlan) -> str:
    name = plan.spec.name
    labels = ",".join(f"{key}={value}" for key, value in plan.spec.labels)
    arguments = f"--hostname-override {name} --node-ip {plan.address}"
    if labels:
        arguments += f" --node-labels {labels}"
    cluster_range = f"10.{88 + plan.place.index}.0.0/16"
    return f"NODE_NAME={name}\nCLUSTER_RANGE={cluster_range}\nKUBELET_ARGS={arguments}\nGOGC=60\n"


def _units(upper: Path) -> None:
    wanted = upper / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(parents=True, exist_ok=True)
    for name, text in _UNITS.items():
        _put(upper, f"etc/systemd/system/{name}", text)
        link = wanted / name
        link.unlink(missing_ok=True)
        link.symlink_to(f"/etc/systemd/system/{name}")
