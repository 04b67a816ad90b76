"""Counts of the tests and cases of this process, for the pytest plugin and for measurements."""

from __future__ import annotations

import sys
import time

from . import config

totals = {"tests": 0, "cases": 0, "attempts": 0, "seconds": 0.0, "graphs": 0}
graph_refusals: dict[str, int] = {}  # reason: how many cases a graph could not be made for


def note(valid: int, attempts: int, seconds: float) -> None:
    """Count one test."""
    totals["tests"] += 1
    totals["cases"] += valid
    totals["attempts"] += attempts
    totals["seconds"] += seconds


def note_graph_refused(reason: str) -> None:
    """Count one case without a graph check."""
    graph_refusals[reason] = graph_refusals.get(reason, 0) + 1


# ----------- Progress of a long run: a line on stderr for every N items, with the elapsed time; none with
# ONEFLOW_QUIET=1.


class Progress:
    """`add()` counts items of a run and prints a line whenever another `every` of them are done."""

    def __init__(self, run: str, items: str, total: int, every: int) -> None:
        self.run, self.items, self.total, self.every = run, items, total, every
        self.done = 0
        self.start = time.monotonic()

    def add(self, count: int = 1) -> None:
        before, self.done = self.done, self.done + count
        if self.done // self.every > before // self.every and not config.is_set("ONEFLOW_QUIET"):
            print(
                f"{self.run}: {self.done} of {self.total} {self.items},"
                f" {elapsed(time.monotonic() - self.start)}",
                file=sys.stderr,
                flush=True,
            )


def elapsed(seconds: float) -> str:
    """Return a time as text: 8 s, 2 min 5 s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
