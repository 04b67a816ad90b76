"""Outcomes of the tests of this process, for the pytest plugin; progress of long runs."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import config

PREFIX = "autotest_"  # prefix of the properties of a test report
NUMBERS = ("cases", "attempts", "refused", "graphs")  # numbers of an outcome


@dataclass
class Outcome:
    """What one run of a test found. The numbers count cases."""

    seed: int | None = None
    cases: int = 0  # cases that agree
    attempts: int = 0
    refused: int = 0  # cases that the reference refused
    graphs: int = 0  # cases whose graph agrees, too
    seconds: float = 0.0
    without_graph: Counter[str] = field(default_factory=Counter)  # reason: cases
    # A failure: the check that found it, the step as source code, its line in the test, the script's file.
    check: str = ""
    step: str = ""
    file: str = ""
    line: int = 0
    script: str = ""

    def properties(self) -> list[tuple[str, str]]:
        """Return the numbers and texts that are not empty, as properties of a test report."""
        values = {**dataclasses.asdict(self), "without_graph": json.dumps(self.without_graph)}
        return [
            (f"{PREFIX}{name}", str(value))
            for name, value in values.items()
            if name in NUMBERS or value not in ("", 0, "{}", None)
        ]

    @classmethod
    def from_properties(cls, properties: Iterable[tuple[str, object]]) -> Outcome | None:
        """Return the outcome that `properties` gave, None if there is none."""
        texts = {name.removeprefix(PREFIX): str(v) for name, v in properties if name.startswith(PREFIX)}
        if not texts:
            return None
        outcome = cls()
        for name, text in texts.items():
            value: Any = text
            if name == "without_graph":
                value = Counter(json.loads(text))
            elif name == "seconds":
                value = float(text)
            elif name in ("seed", "line", *NUMBERS):
                value = int(text)
            setattr(outcome, name, value)
        return outcome


outcomes: list[Outcome] = []  # outcome of each run of a test in this process, in order


def added(parts: Iterable[Outcome]) -> Outcome:
    """Return several outcomes as one: numbers are added, and the last failure is kept."""
    total = Outcome()
    for part in parts:
        total.seed = part.seed if total.seed is None else total.seed
        for name in NUMBERS:
            setattr(total, name, getattr(total, name) + getattr(part, name))
        total.seconds += part.seconds
        total.without_graph += part.without_graph
        if part.check:
            total.check, total.step, total.script = part.check, part.step, part.script
            total.file, total.line = part.file, part.line
    return total


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
