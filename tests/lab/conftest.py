# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One lab for all tests that only read or break-and-mend it; tests of a lab's life make their own."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from tests.lab.explain import explain
from tests.lab.harness import Lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a lab."""
    for item in items:
        if "tests/lab/" in item.nodeid:
            item.add_marker(pytest.mark.lab)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the state of its lab, because nobody can look into it later."""
    report = yield
    if report.failed:
        labs = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Lab)]
        report.sections += [(f"lab {lab.name}", explain(lab)) for lab in labs]
    return report


@pytest.fixture(scope="session", autouse=True)
def root() -> None:
    """A run without root must not look as if the lab had been tested."""
    assert os.geteuid() == 0, "tests/lab starts real Kubernetes nodes and needs root; without it run: make test-quick"


@pytest.fixture(scope="session")
def demo() -> Iterator[Lab]:
    """The demo topology with gpuops.k8s.site applied once."""
    lab = Lab("test-demo", "demo")
    with lab.running():
        lab.first_run = lab.playbook("site")
        yield lab


@pytest.fixture(scope="session")
def small() -> Iterator[Lab]:
    """Three vendors with few GPUs, provisioned; for tests that break something and mend it again."""
    lab = Lab("test-small", "small")
    with lab.running():
        lab.first_run = lab.playbook("site")
        assert lab.first_run.code == 0, lab.first_run.output[-4000:]
        yield lab
