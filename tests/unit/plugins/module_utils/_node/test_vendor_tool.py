# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vendors' tools that hang, flood, print rubbish or fail, and what is made of it."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.gpuops.k8s.plugins.module_utils._node import tools
from ansible_collections.gpuops.k8s.plugins.module_utils._node.collect import collect
from tests.fixtures.node_tree import NodeTree

UUID = "GPU-11111111-2222-3333-4444-55555555555"


@pytest.fixture
def tree(tmp_path):
    tree = NodeTree(tmp_path)
    tree.nvidia("0000:0c:00.0", 0, UUID + "0")
    tree.nvidia("0000:1c:00.0", 1, UUID + "1")
    return tree


def script(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def asked(tree, answers):
    """Facts with the given answers by the word that tells the questions apart; all others end with an error."""
    commands = []

    def run(command, timeout):
        commands.append(command)
        line = " ".join(command)
        return next((answer for word, answer in answers.items() if word in line), tools.ToolAnswer("failed", detail="refused"))

    return collect(str(tree.root), run_tool=run), commands


def rows(*cells):
    lines = [f"{number}, {UUID}{number}, 00000000:{bus}:00.0, {rest}" for number, (bus, rest) in enumerate(cells)]
    return tools.ToolAnswer("ok", "\n".join(lines) + "\n")


BASE = rows(("0C", "NVIDIA H100 80GB HBM3, 81559, 580.95.05"), ("1C", "NVIDIA H100 80GB HBM3, 81559, 580.95.05"))


@pytest.mark.parametrize("text", ["yes", "yes >&2"])
def test_tool_that_prints_without_end(tmp_path, text):
    answer = tools.run(["flood"], 60, script(tmp_path, "flood", f"exec {text}"))
    assert (answer.state, answer.output) == ("failed", "")
    assert answer.detail == "it printed more than 1024 KiB"


def test_tool_that_prints_what_is_no_text(tmp_path):
    path = script(tmp_path, "garbage", r"printf 'a\377\000b\n'; printf '\033[31mbad\007\n' >&2; exit 3")
    answer = tools.run(["garbage"], 60, path)
    assert answer.state == "failed"
    assert answer.detail == "exit status 3: ?[31mbad?"
    assert answer.output == "a\ufffd\x00b\n"


def test_long_complaint_is_cut(tmp_path):
    path = script(tmp_path, "long", "head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1")
    assert len(tools.run(["long"], 60, path).detail) < 400


def test_tool_whose_child_keeps_its_output_open_counts_as_slow(tmp_path):
    path = script(tmp_path, "child", "sleep 60 & echo done")
    assert tools.run(["child"], 0.3, path).state == "slow"


def test_tools_run_side_by_side():
    everyone = threading.Barrier(3, timeout=60)

    def run(command, timeout):
        everyone.wait()
        return tools.ToolAnswer("ok", command[0])

    answers = tools.run_all([("one",), ("two",), ("three",), ("one",)], 60, run)
    assert {command: answer.output for command, answer in answers.items()} == {
        ("one",): "one", ("two",): "two", ("three",): "three",
    }  # fmt: skip


def test_tools_are_asked_with_the_deadline(tree):
    seen = []
    collect(
        str(tree.root), tool_timeout=7, run_tool=lambda command, timeout: seen.append(timeout) or tools.ToolAnswer("absent")
    )
    assert set(seen) == {7}


def test_what_the_tool_tells_beyond_the_files(tree):
    details = "00000000:0C:00.0, 9.0, Enabled, Disabled\n00000000:1C:00.0, [N/A], [N/A], [N/A]\n"
    found, _commands = asked(tree, {"index": BASE, "compute_cap": tools.ToolAnswer("ok", details)})
    first, second = found["gpus"]
    assert (first["capability"], first["mig_mode"], first["ecc"]) == ("9.0", "enabled", "disabled")
    assert (second["capability"], second["mig_mode"], second["ecc"]) == ("9.0", "", "")
    assert [problem["code"] for problem in found["problems"]] == ["mig_without_instances"]


def test_older_tool_that_refuses_some_fields_still_gives_the_others(tree):
    found, _commands = asked(tree, {"index": BASE})
    assert {gpu["memory_bytes"] for gpu in found["gpus"]} == {81559 * 1024**2}
    assert {gpu["capability"] for gpu in found["gpus"]} == {"9.0"}
    assert found["problems"] == []
    assert ["capability" in entry["reason"] for entry in found["left_out"]] == [True, False]


@pytest.mark.parametrize("cell", ["ERR!", "[Unknown Error]", "[GPU requires reset]", "[GPU is lost]"])
def test_gpu_in_error(tree, cell):
    answer = rows(("0C", "NVIDIA H100 80GB HBM3, 81559, 580.95.05"), ("1C", f"{cell}, {cell}, 580.95.05"))
    found, _commands = asked(tree, {"index": answer})
    assert [(problem["code"], problem["subject"]) for problem in found["problems"]] == [("gpu_error", "0000:1c:00.0")]
    assert found["gpus"][1]["memory_source"] == "nominal"


@pytest.mark.parametrize(
    "text", ["", "garbage", ",,,,,,,", "0, GPU-x", "\x00\x01\n\n,", "9" * 100000, "0, , zz:zz, , -1, x\n" * 50]
)
def test_rubbish_changes_no_record(tree, text):
    plain = collect(str(tree.root))
    found, _commands = asked(tree, {"nvidia-smi": tools.ToolAnswer("ok", text)})
    assert found["gpus"] == plain["gpus"]
    assert [problem["code"] for problem in found["problems"]] == ["tool_counts_fewer"]


def test_one_gpu_named_twice_is_one(tree):
    answer = rows(("0C", "X, 1, 1"), ("0C", "X, 1, 1"))
    found, _commands = asked(tree, {"index": answer})
    assert "names 1 of the 2" in found["problems"][0]["message"]


def test_mismatch_that_only_the_tool_tells(tree):
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.133\n"
    answer = tools.ToolAnswer("failed", text, "exit status 18")
    found, _commands = asked(tree, {"nvidia-smi": answer})
    assert found["drivers"]["nvidia"]["mismatch"] is True
    assert found["drivers"]["nvidia"]["userspace_version"] == "570.133"
    assert {"tool_broken", "driver_library_mismatch"} == {problem["code"] for problem in found["problems"]}


def test_no_question_more_than_there_is_something_to_ask(tmp_path):
    tree = NodeTree(tmp_path)
    tree.nvidia("0000:0c:00.0", 0, UUID)
    _found, commands = asked(tree, {})
    assert not any("topo" in command or "-L" in command for command in commands)
    tree.write("/proc/driver/nvidia/capabilities/gpu0/mig/gi7/ci0/access", "DeviceFileMinor: 66")
    found, commands = asked(tree, {})
    assert ("nvidia-smi", "-L") in commands
    assert found["gpus"][0]["mig_mode"] == "enabled"
    assert found["gpus"][0]["mig_devices"] == [{"uuid": "", "profile": ""}]


def test_no_tool_runs_for_gpus_that_the_driver_does_not_hold(tmp_path):
    tree = NodeTree(tmp_path)
    tree.function("0000:0c:00.0", "10de", "2330", driver="vfio-pci")
    _found, commands = asked(tree, {})
    assert commands == []
