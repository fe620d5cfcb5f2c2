# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of docs/vendors.md, made from the vendors' records: python tools/vendor_tables.py writes, --check compares."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PAGE = CHECKOUT / "docs" / "vendors.md"
BEGIN, END = "<!-- made by tools/vendor_tables.py: begin -->", "<!-- made by tools/vendor_tables.py: end -->"
sys.path.insert(0, str(CHECKOUT / "build" / "collections"))

from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.base import GIB, Vendor  # noqa: E402
from ansible_collections.gpuops.k8s.plugins.module_utils._vendors.registry import VENDORS  # noqa: E402


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; an empty string without rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines, "", ""]) if lines else ""


def code(words: Iterable[str]) -> str:
    """Words as code, separated by commas."""
    return ", ".join(f"`{word}`" for word in words)


def models(vendor: Vendor) -> str:
    """Every model that is known by its PCI id."""
    rows = [
        (
            model.name,
            f"{vendor.pci_vendor_id}:{device}",
            f"{model.memory_bytes / GIB:g} GiB" if model.memory_bytes else "shared",
            model.architecture,
        )
        for device, model in sorted(vendor.models.items(), key=lambda entry: (entry[1].architecture, entry[1].name, entry[0]))
    ]
    return table(("model", "PCI id", "nominal memory", "architecture"), rows)


def prerequisites(vendor: Vendor) -> str:
    """What a node needs, by distribution."""
    space = vendor.user_space
    text = (
        f"Kernel driver: {' or '.join(f'`{driver}` (offers `{resource}`)' for driver, resource in vendor.resources.items())}."
    )
    text += f" Device nodes without which nothing works: {code(vendor.required_nodes)}." if vendor.required_nodes else ""
    text += f" Groups that own the device nodes: {code(space.groups)}." if space.groups else ""
    text += f" A program chooses among its GPUs by {code(space.guidance)}." if space.guidance else ""
    rows = [
        (
            source,
            key,
            code(packages.packages),
            packages.version or "newest",
            packages.repository.url if packages.repository else "its own",
        )
        for source, sets in space.sets.items()
        for key, packages in sets.items()
    ]
    return f"{text}\n\n" + table(("source", "distribution", "packages", "version", "repository"), rows)


def drivers(vendor: Vendor) -> str:
    """What `driver: install` installs."""
    driver = vendor.user_space.driver
    if driver is None:
        return ""
    rows = [(key, code(packages)) for key, packages in driver.packages.items()]
    kept = f" and keeps {code(driver.blacklist)} away" if driver.blacklist else ""
    return f"`driver: install` installs{kept}:\n\n" + table(("distribution", "packages"), rows)


def options(vendor: Vendor) -> str:
    """Options of the device plugin."""
    rows = [
        (f"`{name}`", f"`{option.argument}`", ", ".join(option.choices) or option.type, option.default or "")
        for name, option in vendor.plugin.options.items()
    ]
    return table(("option", "argument", "values", "default here"), rows)


def incompatible(vendor: Vendor) -> str:
    """Versions that do not go together."""
    rows = [
        (f"`{rule.code}`", ", ".join(f"{name} {condition.replace('|', ' or ')}" for name, condition in rule.when.items()),
         rule.message.replace("{", "`").replace("}", "`"), rule.hint, rule.source)
        for rule in vendor.incompatibilities
    ]  # fmt: skip
    return table(("code", "when", "what", "next step", "source"), rows)


def page() -> str:
    """The tables of all vendors."""
    parts = []
    for vendor in VENDORS.values():
        plugin = vendor.plugin
        parts += [
            f"## {vendor.title}\n\n### {vendor.title}: supported models\n\n{models(vendor)}",
            f"### {vendor.title}: what a node needs\n\n{prerequisites(vendor)}{drivers(vendor)}",
            f"### {vendor.title}: options of the device plugin\n\nImage `{plugin.image}:{plugin.version}`.\n\n",
            options(vendor),
            f"### {vendor.title}: versions that do not go together\n\n{incompatible(vendor)}",
        ]
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with --check; 1 if it is not what the data say."""
    text = PAGE.read_text(encoding="utf-8")
    before, _begin, rest = text.partition(BEGIN)
    _old, _end, after = rest.partition(END)
    wanted = f"{before}{BEGIN}\n\n{page()}{END}{after}"
    if not _begin or not _end:
        print(f"{PAGE}: the lines {BEGIN!r} and {END!r} are missing", file=sys.stderr)
        return 1
    if arguments == ["--check"]:
        if wanted != text:
            print(f"{PAGE}: its tables differ from the vendors' records; run: python tools/vendor_tables.py", file=sys.stderr)
        return int(wanted != text)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
