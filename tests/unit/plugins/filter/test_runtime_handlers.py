# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Only vendors that need a handler of their own, and only where their GPUs are used."""

from __future__ import annotations

from ansible_collections.gpuops.k8s.plugins.filter.runtime_handlers import runtime_handlers


def facts(*gpus: tuple[str, str]) -> dict[str, object]:
    return {"gpus": [{"vendor": vendor, "resource": resource} for vendor, resource in gpus]}


def test_nvidia_brings_its_handler_and_the_others_none() -> None:
    wanted = [{"name": "nvidia", "path": "/usr/bin/nvidia-container-runtime"}]
    assert runtime_handlers(facts(("nvidia", "nvidia.com/gpu"), ("nvidia", "nvidia.com/gpu"))) == wanted
    assert runtime_handlers(facts(("amd", "amd.com/gpu"), ("nvidia", "nvidia.com/gpu"))) == wanted
    assert runtime_handlers(facts(("amd", "amd.com/gpu"), ("intel", "gpu.intel.com/xe"))) == []


def test_a_gpu_that_serves_no_containers_needs_no_handler() -> None:
    assert runtime_handlers(facts(("nvidia", ""))) == []
    assert runtime_handlers(facts()) == []
