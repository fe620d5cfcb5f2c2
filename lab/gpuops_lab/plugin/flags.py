# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command lines as Go's flag package reads them, with the environment that NVIDIA's plugin adds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuops_lab.plugin.model import PluginExit

Value = str | int | bool
_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")


@dataclass(frozen=True)
class Flag:
    """One flag; its kind is the type of its default."""

    default: Value
    environment: str = ""
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


class Help(Exception):  # noqa: N818 - it is no error
    """Somebody asked for help; the text is the usage."""


def logging_flags() -> dict[str, Flag]:
    """The flags that Go's logging packages add."""
    texts = ("log_backtrace_at", "log_dir", "log_file", "vmodule", "stderrthreshold", "v")
    switches = ("logtostderr", "alsologtostderr", "add_dir_header", "one_output", "skip_headers", "skip_log_headers")
    return {name: Flag("") for name in texts} | {name: Flag(False) for name in switches}


def parse(
    arguments: Sequence[str], flags: Mapping[str, Flag], environment: Mapping[str, str], error_code: int = 2
) -> tuple[dict[str, Value], set[str]]:
    """Read a command line: values of all flags, and the names of those that were given.

    Raises:
        PluginExit: Wrong use, with the text and exit status of Go programs.
        Help: C(-h) or C(--help).
    """
    names = {alias: name for name, flag in flags.items() for alias in (name, *flag.aliases)}
    given = _from_environment(flags, environment)
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        match = re.fullmatch(r"--?([^=-][^=]*)(?:=(.*))?", word, re.DOTALL)
        if not match:
            raise PluginExit(f"unexpected argument {word!r}\n{usage(flags)}", error_code)
        spelled, value = match[1], match[2]
        if spelled in ("h", "help"):
            raise Help(usage(flags))
        if spelled not in names:
            raise PluginExit(f"flag provided but not defined: -{spelled}\n{usage(flags)}", error_code)
        name = names[spelled]
        if value is None and isinstance(flags[name].default, bool):
            value = "true"
        if value is None:
            if not rest:
                raise PluginExit(f"flag needs an argument: -{spelled}\n{usage(flags)}", error_code)
            value = rest.pop(0)
        given[name] = value
    return {name: _value(name, flag, given, error_code) for name, flag in flags.items()}, set(given)


def _from_environment(flags: Mapping[str, Flag], environment: Mapping[str, str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, flag in flags.items():
        for variable in flag.environment.split():
            if environment.get(variable):
                given.setdefault(name, environment[variable])
    return given


def _value(name: str, flag: Flag, given: Mapping[str, str], error_code: int) -> Value:
    if name not in given:
        return flag.default
    text = given[name]
    if isinstance(flag.default, bool):
        if text not in _TRUE + _FALSE:
            raise PluginExit(f'invalid boolean value "{text}" for -{name}: parse error', error_code)
        return text in _TRUE
    if isinstance(flag.default, int):
        if not re.fullmatch(r"[+-]?\d+", text):
            raise PluginExit(f'invalid value "{text}" for flag -{name}: parse error', error_code)
        return int(text)
    if flag.choices and text not in flag.choices:
        raise PluginExit(f"invalid value {text!r} for -{name}: must be one of {', '.join(flag.choices)}", 1)
    return text


def usage(flags: Mapping[str, Flag]) -> str:
    """A list of the flags with their defaults."""
    lines = ["Usage of gpuops-device-plugin:"]
    for name, flag in sorted(flags.items()):
        kind = "" if isinstance(flag.default, bool) else f" {type(flag.default).__name__.replace('str', 'string')}"
        lines.append(f"  -{name}{kind}\t(default {flag.default!r})")
    return "\n".join(lines)
