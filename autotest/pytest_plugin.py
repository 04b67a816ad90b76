"""pytest options for autotest tests; loaded by the installed package, or with `-p
oneflow_autotest.pytest_plugin`.

--autotest-n N            valid cases per test instead of the test's own n
--autotest-seconds S      the time of each test, whatever its n
--autotest-seed S         the cases of this seed; date: of today
--autotest-like NAME      kernels or oneflow: how cases are sampled
--autotest-graph MODE     on (as the test asks), off, all
--graph-backend NAME      backend of the graph check: aten, inductor, ...
--autotest-errors MODE    class, any, no: how refusals of the two sides are compared
--autotest-failures DIR   where the scripts of failures are written
--autotest-history FILE   a line for each test and run
--autotest-verbose        print each program as it runs

The outcome of each test is in the properties of pytest's report, and so in a JUnit file. Totals, history and
annotations are made from the reports, which come from all workers of pytest-xdist.
"""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from typing import Any

import pytest

from . import config, history, summary

OPTIONS = {  # option: (variable, help)
    "--autotest-n": ("ONEFLOW_TEST_N", "valid cases per autotest, instead of the test's own n"),
    "--autotest-seconds": ("ONEFLOW_TEST_SECONDS", "time of each autotest, whatever its n"),
    "--autotest-seed": ("ONEFLOW_TEST_SEED", "seed of the sampled cases; date: that of today"),
    "--autotest-like": ("ONEFLOW_TEST_LIKE", "how cases are sampled, whatever the test says"),
    "--autotest-graph": ("ONEFLOW_TEST_GRAPH", "graph check: as the test asks, never, always"),
    "--graph-backend": ("ONEFLOW_TEST_GRAPH_BACKEND", "backend of the graph check (default aten)"),
    "--autotest-errors": ("ONEFLOW_TEST_ERRORS", "how refusals of the two sides are compared"),
    "--autotest-database": ("ONEFLOW_TEST_DATABASE", "folder of failing examples, or none"),
    "--autotest-failures": ("ONEFLOW_TEST_FAILURES", "folder of the scripts of failures, or none"),
    "--autotest-history": ("ONEFLOW_TEST_HISTORY", "file that gets a line for each test of each run"),
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
    if not hasattr(config, "workerinput"):  # not in a worker of pytest-xdist, which sends its reports
        config.pluginmanager.register(_Reports(), "oneflow_autotest_reports")


def _override(variable: str, value: object) -> None:
    config.overrides[variable] = str(value)


@pytest.fixture
def test_case() -> unittest.TestCase:
    """A unittest.TestCase, for autotest functions outside a class: `def test_x(test_case)`."""
    return unittest.TestCase()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Put the outcome of a test into the properties of its report."""
    summary.outcomes.clear()
    yield
    if summary.outcomes:
        item.user_properties += summary.added(summary.outcomes).properties()


class _Reports:
    """What the reports of all tests say together."""

    def __init__(self) -> None:
        self.outcomes: dict[str, tuple[pytest.TestReport, summary.Outcome]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = summary.Outcome.from_properties(report.user_properties)
        if report.when == "call" and outcome is not None:
            self.outcomes[report.nodeid] = report, outcome

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.outcomes:
            return
        total = summary.added(outcome for _, outcome in self.outcomes.values())
        rate = total.cases / total.seconds if total.seconds else 0
        terminalreporter.write_line(
            f"autotest: {total.cases} cases of {len(self.outcomes)} tests agree"
            f" ({total.refused} refused by both, {total.graphs} as graphs,"
            f" {rate:.{0 if rate >= 10 else 1}f} cases/s)"
        )
        for reason, count in total.without_graph.most_common(10):
            terminalreporter.write_line(f"autotest: {count} cases without a graph check: {reason}")
        if config.is_set("GITHUB_ACTIONS"):
            for report, outcome in self.outcomes.values():
                if report.failed and outcome.line:
                    terminalreporter.write_line(annotation(report, outcome))
        file = config.get("ONEFLOW_TEST_HISTORY")
        if file:
            runs = {name: (report.outcome, outcome) for name, (report, outcome) in self.outcomes.items()}
            history.add(file, runs)


def annotation(report: pytest.TestReport, outcome: summary.Outcome) -> str:
    """Return the line by which GitHub shows a failure beside the line of the test."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(getattr(crash, "message", report.longrepr)).partition("\nsmallest failing case")[0].strip()
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        message = message.replace(character, code)
    title = report.nodeid.replace(",", "%2C").replace("::", ".")
    return f"::error file={outcome.file},line={outcome.line},title={title}::{message}"
