# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's network on the host: one bridge, one link and namespace a node, one nftables table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from gpuops_lab.command import run, succeeds
from gpuops_lab.errors import LabError
from gpuops_lab.place import Place, every

_COMMENT = "gpuops-lab"


def create(place: Place) -> None:
    """Make the bridge and let the nodes reach the outside through the host."""
    if not succeeds(["ip", "link", "show", place.bridge]):
        run(["ip", "link", "add", place.bridge, "type", "bridge"], what=f"create bridge {place.bridge}")
    run(["ip", "address", "replace", f"{place.host_address}/24", "dev", place.bridge], what=f"address {place.bridge}")
    run(["ip", "link", "set", place.bridge, "up"], what=f"raise {place.bridge}")
    rules = f"""
table ip {place.table} {{}}
delete table ip {place.table}
table ip {place.table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {place.node_range} oifname != "{place.bridge}" masquerade
    ip saddr 10.{88 + place.index}.0.0/16 oifname != "{place.bridge}" masquerade
  }}
}}
"""
    run(["nft", "-f", "-"], what=f"create nftables table {place.table}", stdin=rules)
    _accept_forwarding(place)


def add_node(place: Place, node: str, position: int, count: int) -> None:
    """Make a node's network namespace and join it to the bridge; twice is a no-op."""
    namespace, link = place.network_namespace(node), place.link(position)
    if not Path("/run/netns", namespace).exists():
        run(["ip", "netns", "add", namespace], what=f"create network namespace {namespace}")
    if not succeeds(["ip", "-n", namespace, "link", "show", "eth0"]):
        run(["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace], what=f"create {link}")
    run(["ip", "link", "set", link, "master", place.bridge, "up"], what=f"join {link} to {place.bridge}")
    routes = [
        f"route replace {place.pod_range(other)} via {place.node_address(other)}"
        for other in range(count)
        if other != position
    ]
    batch = [
        f"address replace {place.node_address(position)}/24 dev eth0",
        "link set eth0 up",
        "link set lo up",
        f"route replace default via {place.host_address}",
        *routes,
    ]
    run(["ip", "-n", namespace, "-batch", "-"], what=f"configure the network of {node}", stdin="\n".join(batch) + "\n")


def remove(place: Place) -> None:
    """Remove everything that C(create) and C(add_node) make, from names alone."""
    for path in Path("/run/netns").glob(f"gpuops-{place.name}-*"):
        if _belongs(place, path.name):
            run(["ip", "netns", "delete", path.name], what=f"delete network namespace {path.name}")
    for link in _links():
        if link == place.bridge or link.startswith(f"{place.bridge}n"):
            succeeds(["ip", "link", "delete", link])  # a link goes with its peer, so it may be gone already
    if succeeds(["nft", "list", "table", "ip", place.table]):
        run(["nft", "delete", "table", "ip", place.table], what=f"delete nftables table {place.table}")
    _revoke_forwarding(place)


def _belongs(place: Place, namespace: str) -> bool:
    """Whether a namespace is this lab's and not that of a lab whose name starts the same."""
    longer = [o.name for o in every() if o.name != place.name and o.name.startswith(f"{place.name}-")]
    return not any(namespace.startswith(f"gpuops-{name}-") for name in longer)


def _links() -> list[str]:
    return [entry["ifname"] for entry in json.loads(run(["ip", "-json", "link", "show"], what="list links"))]


def _accept_forwarding(place: Place) -> None:
    """Where Docker runs, the FORWARD policy is DROP: let the lab's bridge through."""
    if not shutil.which("iptables") or "-P FORWARD DROP" not in _forward_rules():
        return
    for rule in _rules(place):
        if not succeeds(["iptables", "-C", "FORWARD", *rule]):
            run(["iptables", "-I", "FORWARD", *rule], what=f"let {place.bridge} through the FORWARD chain")


def _revoke_forwarding(place: Place) -> None:
    if shutil.which("iptables") and _COMMENT in _forward_rules():
        for rule in _rules(place):
            succeeds(["iptables", "-D", "FORWARD", *rule])


def _rules(place: Place) -> list[list[str]]:
    end = ["-m", "comment", "--comment", _COMMENT, "-j", "ACCEPT"]
    return [["-i", place.bridge, *end], ["-o", place.bridge, *end]]


def _forward_rules() -> str:
    try:
        return run(["iptables", "-S", "FORWARD"], what="read the FORWARD chain")
    except LabError:
        return ""  # no permission or no kernel support: then nothing filters there either
