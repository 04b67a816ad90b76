"""Why a program does not serve more calls: the records behind `graph.explain()`."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import location_text


@dataclass(frozen=True)
class Explanation:
    """One fact that costs another program."""

    subject: str  # what it is about: "dimension 1 of the argument 'x'"
    reason: str
    location: object = None  # (file, line, function) of the user's code, or None

    def __str__(self):
        where = f"\n  {location_text(self.location)}" if self.location is not None else ""
        return f"{self.subject}: {self.reason}{where}"
