"""Known failures of a test, which must occur until a date, and in the way that is known."""

from __future__ import annotations

import datetime
import unittest
from collections.abc import Callable
from dataclasses import dataclass

from . import config
from .errors import Mismatch


@dataclass(frozen=True)
class KnownFailure:
    """A failure that a test is known to have; see `known_failure`."""

    reason: str
    until: datetime.date
    check: str | None = None

    def expect(self, run: Callable[[], None]) -> None:
        """Run the cases; raise unless they fail as this says."""
        __tracebackhide__ = True
        try:
            run()
        except Mismatch as e:
            if self.check not in (None, e.check):
                raise
            if datetime.date.today() > self.until:
                e.args = (f"a known failure expired on {self.until} ({self.reason})\n{e}",)
                raise
            error = e
        else:
            raise AssertionError(
                f"the known failure does not occur: {self.reason}\n"
                "remove `known=` from the test, or raise n if few cases fail"
            )
        self.leave(f"{self.reason} (known until {self.until}; {str(error).splitlines()[0]})")

    def leave(self, text: str) -> None:
        """End the test: under pytest as an expected failure, elsewhere as a skip."""
        if config.get("PYTEST_CURRENT_TEST"):
            import pytest

            pytest.xfail(text)
        raise unittest.SkipTest(f"known failure: {text}")


def known_failure(reason: str, until: str, check: str | None = None) -> KnownFailure:
    """Say that a test fails, for `@autotest(known=...)`.

    reason: what fails and why, or the address of an issue.
    until: the last day of this, as "2027-01-31". From the day after, the failure is an error.
    check: the check that fails ("values", "strides", ...). A failure of another check is an error, and so is
        a test that passes.

    Raises ValueError if a reason or a date is missing.
    """
    if not reason.strip():
        raise ValueError("known_failure() needs a reason: what fails and why")
    try:
        day = datetime.date.fromisoformat(until)
    except ValueError:
        raise ValueError(
            f"known_failure(until=...) must be a date such as '2027-01-31', found {until!r}"
        ) from None
    return KnownFailure(reason, day, check)
