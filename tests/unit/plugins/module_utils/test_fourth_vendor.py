# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fourth vendor is one file of data: from the PCI bus to the verdict without a line of code of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.gpuops.k8s.plugins.module_utils._node.collect import collect
from tests.fixtures.node_tree import NodeTree
from tests.fixtures.right_cluster import Right
from tests.fixtures.vendors import acme


def facts_of_two(folder: Path) -> dict[str, Any]:
    """What gpu_facts finds on a made-up node with two GPUs of the made-up vendor."""
    tree = NodeTree(folder)
    for number, address in enumerate(("0000:01:00.0", "0000:02:00.0")):
        tree.function(address, "acfe", "0001", "120000", "anvil")
        tree.write(f"/proc/driver/anvil/{address}", f"Number: {number}")
    tree.device("/dev/anvil0", "/dev/anvil1", "/dev/anvilctl")
    return dict(collect(str(tree.root), vendors=[acme.VENDOR]))


def test_made_up_vendor_goes_from_detection_to_verdict(tmp_path: Path) -> None:
    found = facts_of_two(tmp_path)
    assert found["resources"] == {"acme.example/gpu": 2}
    assert found["gpus"][0]["model"] == "Anvil 1"
    right = Right({"acme-1": ("acme", 2)})
    right.nodes["acme-1"]["facts"] = found
    evidence = right.evidence()
    assert evidence["reasons"] == []
    assert evidence["nodes"][0]["resources"][0]["vendor"] == "acme"
    assert evidence["nodes"][0]["resources"][0]["opened"] == 2


def test_made_up_vendor_that_hands_out_the_wrong_device_is_red(tmp_path: Path) -> None:
    right = Right({"acme-1": ("acme", 2)})
    right.nodes["acme-1"]["facts"] = facts_of_two(tmp_path)
    first, second = right.pods("each", "acme-1")
    first["report"] = second["report"]
    evidence = right.evidence()
    red = {check["id"] for check in evidence["checks"] if check["status"] == "fail"}
    assert {"ASG-OPEN", "ASG-LEDGER", "ASG-EACH", "ASG-EXCLUSIVE"} <= red
