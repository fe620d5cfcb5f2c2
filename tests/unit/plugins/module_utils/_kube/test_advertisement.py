# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugin whose pod is ready has not yet offered anything: the wait ends when its nodes do, and not before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuops.k8s.plugins.module_utils._core.errors import GpuOpsError
from ansible_collections.gpuops.k8s.plugins.module_utils._kube import advertisement
from ansible_collections.gpuops.k8s.plugins.module_utils._kube.client import Cluster, ConnectionOptions
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS
from tests.fixtures.fake_api import FakeApi

NVIDIA = VENDORS["nvidia"]


def node(name: str, allocatable: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": allocatable}}


@pytest.mark.parametrize(
    ("allocatable", "expected"),
    [
        ({}, False),
        ({"cpu": "4"}, False),
        ({"nvidia.com/gpu": "0"}, False),
        ({"nvidia.com/gpu": "1"}, True),
        ({"nvidia.com/mig-1g.10gb": "7"}, True),
        ({"amd.com/gpu": "8"}, False),
    ],
)
def test_only_devices_of_the_vendor_count(allocatable: dict[str, str], expected: bool) -> None:
    assert advertisement.is_advertised({"status": {"allocatable": allocatable}}, NVIDIA) is expected


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as running:
        for name in ("one", "two"):
            running.put(f"/api/v1/nodes/{name}", node(name, {}))
        yield running


@pytest.fixture
def cluster(api: FakeApi, tmp_path: Path) -> Cluster:
    return Cluster.connect(ConnectionOptions(kubeconfig=api.kubeconfig(tmp_path / "kubeconfig")))


def offer(api: FakeApi, name: str) -> None:
    api.put(f"/api/v1/nodes/{name}", node(name, {"nvidia.com/gpu": "4"}))


def test_it_ends_when_the_last_node_offers_devices(api: FakeApi, cluster: Cluster) -> None:
    offer(api, "one")
    later = threading.Timer(0.5, offer, (api, "two"))
    later.start()
    advertisement.wait(cluster, NVIDIA, ["one", "two"], 20)
    later.join()


def test_a_node_that_offers_nothing_is_named(api: FakeApi, cluster: Cluster) -> None:
    offer(api, "one")
    with pytest.raises(GpuOpsError, match="two") as caught:
        advertisement.wait(cluster, NVIDIA, ["one", "two"], 0.5)
    assert "one" not in str(caught.value).split("runs on")[1].split(",")[0]
    assert "\n" not in caught.value.line()


def test_without_nodes_there_is_nothing_to_wait_for(cluster: Cluster) -> None:
    advertisement.wait(cluster, NVIDIA, [], 0)
