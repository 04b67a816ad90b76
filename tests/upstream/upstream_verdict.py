"""Compare two runs of a unit test by test, and check the differences against the listed reasons."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from upstream_suites import Suite, Unit

if TYPE_CHECKING:
    from upstream_process import Outcome

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest installs it on Python 3.10

Outcomes = Mapping[str, "Outcome"]
# A reason names a row of docs/differences.md, a version of torch, a defect of this package, or what a machine
# lacks.
REASON = re.compile(r"(difference `(?P<row>[\w-]+)`|torch \d+\.\d+|defect|environment): \S")


@dataclass(frozen=True)
class Verdict:
    """What the comparison of one unit found. Texts of `unexplained` have both outcomes.

    `is_reused` is True if the tests ran with an older state of this package. `notes` counts how the equal
    ones ran.
    """

    suite: str
    unit: str
    tests: int
    skipped: int
    failed_with_torch: int
    unstable: tuple[str, ...]
    explained: dict[str, str] = field(default_factory=dict)
    unexplained: dict[str, str] = field(default_factory=dict)
    stale: tuple[str, ...] = ()
    is_reused: bool = False
    notes: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether each difference has a reason, and each reason a difference."""
        return self.tests > 0 and not self.unexplained and not self.stale


def read_reasons(folder: Path, suite: str) -> dict[str, str]:
    """Return {test: reason} of a suite, from the file that has its name."""
    file = folder / f"{suite}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def differing(torch: Outcomes, here: Outcomes) -> tuple[str, ...]:
    """Return the tests whose outcomes differ: another result, another class of error, or only one side has
    it.
    """
    common = {test for test in torch if test in here and here[test].agrees_with(torch[test])}
    return tuple(sorted({*torch, *here} - common))


def repeated_differences(tests: tuple[str, ...], torch: Outcomes, here: Outcomes) -> tuple[str, ...]:
    """Return those of the tests that differ in the repetition, or that no side has there."""
    common = {*torch} & {*here} - {*differing(torch, here)}
    return tuple(test for test in tests if test not in common)


def expected_without_baseline(here: Outcomes) -> dict[str, Outcome]:
    """Return what a suite without a baseline expects: each test that is not skipped passes."""
    return {
        test: outcome if outcome.result == "skipped" else _passed(outcome) for test, outcome in here.items()
    }


def _passed(outcome: Outcome) -> Outcome:
    return type(outcome)("passed")


def belongs_to(test: str, unit: Unit) -> bool:
    """Whether a test is one of a unit's."""
    return test == unit.path or test.startswith((f"{unit.path}::", f"{unit.path}/")) or unit.path == "."


def judge(
    suite: Suite,
    unit: Unit,
    torch: Outcomes,
    here: Outcomes,
    differ_again: tuple[str, ...],
    reasons: Mapping[str, str],
    is_complete: bool = True,
) -> Verdict:
    """Return the verdict on a unit. `differ_again` are the tests that differ when they are repeated, too.

    A reason is stale if its test runs and does not differ, or if the full unit runs without this test. A run
    with a time limit is not complete.
    """
    first = differing(torch, here)
    of_unit = {test: reason for test, reason in reasons.items() if belongs_to(test, unit)}
    ran = {*torch, *here}
    gone = {test for test in of_unit if test not in ran} if unit.sample == 1 and is_complete else set()
    notes = Counter(outcome.note for test, outcome in here.items() if outcome.note and test not in first)
    skipped = [t for t in ran if "skipped" in (_result(torch, t), _result(here, t)) and t not in first]
    return Verdict(
        suite=suite.name,
        unit=unit.path,
        tests=len(ran) - len(skipped),
        skipped=len(skipped),
        failed_with_torch=sum(
            outcome.result in ("failed", "error", "timeout", "crashed") for outcome in torch.values()
        ),
        unstable=tuple(test for test in first if test not in differ_again),
        explained={test: of_unit[test] for test in differ_again if test in of_unit},
        unexplained={
            test: _difference(torch.get(test), here.get(test)) for test in differ_again if test not in of_unit
        },
        notes=dict(notes),
        stale=tuple(sorted(gone | {test for test in of_unit if test in ran and test not in first})),
    )


def _difference(torch: Outcome | None, here: Outcome | None) -> str:
    if torch is None or here is None:
        return f"torch: {torch or 'not there'}; here: {here or 'not there'}"
    return here.first_difference(torch)


def _result(outcomes: Outcomes, test: str) -> str:
    return outcomes[test].result if test in outcomes else ""
