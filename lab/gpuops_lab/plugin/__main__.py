# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command gpuops-device-plugin."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from gpuops_lab.plugin.flags import Help
from gpuops_lab.plugin.lifecycle import Life
from gpuops_lab.plugin.model import Places, Plugin, PluginExit
from gpuops_lab.plugin.vendors.amd import AmdPlugin
from gpuops_lab.plugin.vendors.intel import IntelPlugin
from gpuops_lab.plugin.vendors.nvidia import NvidiaPlugin

VENDORS: dict[str, Callable[[Sequence[str], Mapping[str, str], Places], Plugin]] = {
    "nvidia": NvidiaPlugin,
    "amd": AmdPlugin,
    "intel": IntelPlugin,
}
_USAGE = f"""usage: gpuops-device-plugin --vendor {"|".join(VENDORS)} [the vendor's own flags]

A simulated Kubernetes device plugin: it reads the hardware that the node shows, speaks v1beta1 and answers as the
vendor's own plugin does. `gpuops-device-plugin --vendor NAME --help` lists that vendor's flags."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a plugin; returns only for wrong use and help, else the process ends with the vendor's exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    vendor, rest = _take_vendor(words, os.environ)
    if vendor not in VENDORS:
        wants_help = not vendor and rest[:1] in (["--help"], ["-h"])
        print(_USAGE, file=sys.stdout if wants_help else sys.stderr)
        if not wants_help:
            print(f"gpuops-device-plugin: unknown vendor {vendor!r}" if vendor else "gpuops-device-plugin: no vendor given",
                  file=sys.stderr)  # fmt: skip
        return 0 if wants_help else 2
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=f"%(asctime)s {vendor}: %(message)s")
    try:
        code = serve(vendor, rest)
    except Help as text:
        print(text)
        return 0
    sys.stderr.flush()
    # Without clean-up: some vendors' plugins leave their socket files behind, which a library would remove here.
    os._exit(code)


def serve(vendor: str, arguments: Sequence[str]) -> int:
    """Run one vendor's plugin until a signal or its own end; returns the exit status."""
    places = Places.of(os.environ)
    try:
        plugin = VENDORS[vendor](arguments, os.environ, places)
    except PluginExit as end:
        print(end.message, file=sys.stderr)
        return end.code
    logging.info("simulated device plugin of gpuops.k8s, no real GPU is behind it")
    life = Life(plugin, places)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: life.stop())
    signal.signal(signal.SIGHUP, lambda *_: life.restart())
    return life.run()


def _take_vendor(words: list[str], environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """The vendor from the command line or from GPUOPS_VENDOR, and the other arguments."""
    for position, word in enumerate(words):
        if word in ("--vendor", "-vendor") and position + 1 < len(words):
            return words[position + 1], words[:position] + words[position + 2 :]
        if word.startswith(("--vendor=", "-vendor=")):
            return word.partition("=")[2], words[:position] + words[position + 1 :]
    return environment.get("GPUOPS_VENDOR", ""), words


if __name__ == "__main__":
    sys.exit(main())
