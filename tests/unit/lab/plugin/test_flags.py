# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command lines as the vendors' Go programs read them."""

from __future__ import annotations

import pytest

from gpuops_lab.plugin import flags
from gpuops_lab.plugin.__main__ import VENDORS, _take_vendor, main
from gpuops_lab.plugin.flags import Flag, Help
from gpuops_lab.plugin.model import Places, PluginExit
from gpuops_lab.plugin.vendors import nvidia_config

FLAGS = {"pulse": Flag(0), "name": Flag("x", "NAME_VARIABLE", aliases=("called",)), "on": Flag(False)}


def parse(*arguments, **environment):
    return flags.parse(arguments, FLAGS, environment)[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {"pulse": 0, "name": "x", "on": False}),
        (("-pulse=3",), {"pulse": 3, "name": "x", "on": False}),
        (("--pulse", "3", "--on"), {"pulse": 3, "name": "x", "on": True}),
        (("-on=false", "-called", "y"), {"pulse": 0, "name": "y", "on": False}),
        (("-name=a=b",), {"pulse": 0, "name": "a=b", "on": False}),
        (("-name=",), {"pulse": 0, "name": "", "on": False}),
    ],
)
def test_forms(arguments, expected):
    assert parse(*arguments) == expected


def test_command_line_goes_before_environment():
    assert parse(NAME_VARIABLE="env")["name"] == "env"
    assert parse("-name=line", NAME_VARIABLE="env")["name"] == "line"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("-nosuch",), "flag provided but not defined: -nosuch"),
        (("-pulse=x",), 'invalid value "x" for flag -pulse: parse error'),
        (("-pulse",), "flag needs an argument: -pulse"),
        (("-on=maybe",), 'invalid boolean value "maybe" for -on: parse error'),
        (("word",), "unexpected argument 'word'"),
    ],
)
def test_wrong_use(arguments, text):
    with pytest.raises(PluginExit, match="^" + text.split("\n")[0]) as caught:
        parse(*arguments)
    assert caught.value.code == 2


def test_help_lists_the_flags():
    with pytest.raises(Help, match="-pulse int"):
        parse("--help")


@pytest.mark.parametrize(
    ("vendor", "arguments", "text"),
    [
        ("nvidia", ["--device-list-strategy=nosuch"], "invalid --device-list-strategy option: nosuch"),
        ("nvidia", ["--mig-strategy=both"], "must be one of none, single, mixed"),
        ("nvidia", ["--config-file=/nosuch.yaml"], "unable to load config: /nosuch.yaml"),
        ("nvidia", ["--nosuch"], "flag provided but not defined"),
        ("amd", ["-resource_naming_strategy=odd"], "use single or mixed"),
        ("amd", ["-driver_type=container"], "flag provided but not defined"),
        ("intel", ["-shared-dev-num=0"], "greater than zero"),
        ("intel", ["-resource-manager"], "flag provided but not defined"),
        ("intel", ["-allow-ids=0x56c0", "-deny-ids=0x56c1"], "exclude each other"),
        ("intel", ["-allow-ids=56C0"], "takes ids such as 0x56c0"),
        ("intel", ["-monitoring-mode=double"], "the valid values are single, split"),
        ("intel", ["-wsl"], "not simulated"),
    ],
)
def test_options_that_the_vendor_refuses(vendor, arguments, text):
    with pytest.raises(PluginExit) as caught:
        VENDORS[vendor](arguments, {}, Places())
    assert text in caught.value.message
    assert caught.value.code in (1, 2)


def test_every_option_of_the_collection_is_a_flag_of_the_simulated_plugin():
    from ansible_collections.gpuops.k8s.plugins.module_utils._vendors import registry

    values = {"int": "2", "bool": "true", "str": "0x56c0"}
    for vendor in registry.VENDORS.values():
        for name, option in vendor.plugin.options.items():
            value = option.choices[0] if option.choices else values[option.type]
            VENDORS[vendor.name]([option.argument.format(value=value)], {}, Places()), name


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("flags: {}", "needs version: v1"),
        ("version: v1\nnosuch: 1", "unknown field 'nosuch'"),
        ("version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}", "replicas must be >= 2"),
        ("a: [", "unable to load config"),
    ],
)
def test_broken_configuration_files(tmp_path, document, text):
    path = tmp_path / "config.yaml"
    path.write_text(document)
    with pytest.raises(PluginExit, match=text):
        nvidia_config.load([f"--config-file={path}"], {})


def test_configuration_file_comes_last(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "version: v1\nflags: {failOnInitError: false, plugin: {passDeviceSpecs: true, deviceListStrategy: [cdi-cri]}}"
    )
    config = nvidia_config.load([], {"CONFIG_FILE": str(path)})
    assert (config.fail_on_init_error, config.pass_device_specs, config.device_list_strategy) == (False, True, ("cdi-cri",))
    config = nvidia_config.load(["--pass-device-specs=false"], {"CONFIG_FILE": str(path), "FAIL_ON_INIT_ERROR": "true"})
    assert (config.fail_on_init_error, config.pass_device_specs) == (True, False)


@pytest.mark.parametrize(
    "words", [["--vendor", "amd", "-pulse=1"], ["-pulse=1", "--vendor=amd"], ["-pulse=1", "-vendor", "amd"]]
)
def test_vendor_is_found_anywhere(words):
    assert _take_vendor(words, {}) == ("amd", ["-pulse=1"])


def test_vendor_from_the_environment():
    assert _take_vendor(["-pulse=1"], {"GPUOPS_VENDOR": "amd"}) == ("amd", ["-pulse=1"])


def test_command_without_vendor(capsys):
    assert main([]) == 2
    assert "no vendor given" in capsys.readouterr().err
    assert main(["--vendor", "acme"]) == 2
    assert "unknown vendor 'acme'" in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "usage" in capsys.readouterr().out
    assert main(["--vendor", "amd", "--help"]) == 0
    assert "-pulse int" in capsys.readouterr().out
