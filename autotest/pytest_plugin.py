"""pytest options for autotest tests; loaded by the installed package, or with `-p
oneflow_autotest.pytest_plugin`.

--autotest-n N            valid cases per test instead of the test's own n
--autotest-seed S         the cases of this seed
--autotest-like NAME      kernels or oneflow: how cases are sampled
--autotest-graph MODE     on (as the test asks), off, all
--graph-backend NAME      backend of the graph check: aten, inductor, ...
--autotest-errors MODE    class, any, no: how refusals of the two sides are compared
--autotest-verbose        print each program as it runs
"""

from __future__ import annotations

import unittest

import pytest

from . import config, summary

OPTIONS = {  # option: (variable, help)
    "--autotest-n": ("ONEFLOW_TEST_N", "valid cases per autotest, instead of the test's own n"),
    "--autotest-seed": ("ONEFLOW_TEST_SEED", "seed of the sampled cases"),
    "--autotest-like": ("ONEFLOW_TEST_LIKE", "how cases are sampled, whatever the test says"),
    "--autotest-graph": ("ONEFLOW_TEST_GRAPH", "graph check: as the test asks, never, always"),
    "--graph-backend": ("ONEFLOW_TEST_GRAPH_BACKEND", "backend of the graph check (default aten)"),
    "--autotest-errors": ("ONEFLOW_TEST_ERRORS", "how refusals of the two sides are compared"),
    "--autotest-database": ("ONEFLOW_TEST_DATABASE", "folder of failing examples, or none"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("autotest", "oneflow_autotest")
    for option, (variable, help_text) in OPTIONS.items():
        group.addoption(
            option, choices=config.CHOICES.get(variable), default=None, help=f"{help_text} ({variable})"
        )
    group.addoption(
        "--autotest-verbose", action="store_true", help="print each program as it runs (ONEFLOW_TEST_VERBOSE)"
    )


def pytest_configure(config: pytest.Config) -> None:
    for option, (variable, _) in OPTIONS.items():
        value = config.getoption(option)
        if value is not None:
            _override(variable, value)
    if config.getoption("--autotest-verbose"):
        _override("ONEFLOW_TEST_VERBOSE", "1")


def _override(variable: str, value: object) -> None:
    config.overrides[variable] = str(value)


@pytest.fixture
def test_case() -> unittest.TestCase:
    """A unittest.TestCase, for autotest functions outside a class: `def test_x(test_case)`."""
    return unittest.TestCase()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    totals = summary.totals
    if not totals["tests"]:
        return
    rate = totals["cases"] / totals["seconds"] if totals["seconds"] else 0
    terminalreporter.write_line(
        f"autotest: {totals['cases']} cases of {totals['tests']} tests agree"
        f" ({totals['attempts'] - totals['cases']} refused by both, {totals['graphs']} as graphs, "
        f"{rate:.{0 if rate >= 10 else 1}f} cases/s)"
    )
    for reason, count in sorted(summary.graph_refusals.items(), key=lambda item: -item[1])[:10]:
        terminalreporter.write_line(f"autotest: {count} cases without a graph check: {reason}")
