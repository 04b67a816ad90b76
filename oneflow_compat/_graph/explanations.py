"""Why a graph has more programs than one: the records behind `graph.explain()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import location_text


@dataclass(frozen=True)
class Explanation:
    """One fact that costs another program."""

    subject: str  # what it is about: "dimension 1 of the argument 'x'"
    reason: str
    location: object = None  # (file, line, function) of the user's code, or None

    def __str__(self) -> str:
        location = f"\n  {location_text(self.location)}" if self.location is not None else ""
        return f"{self.subject}: {self.reason}{location}"


def explained(name: str, programs: Any, explanations: Any) -> str:
    """The programs of a graph with the sizes they serve, and what keeps them from serving more."""
    lines = [f"graph {name}: {len(programs)} program{'s' * (len(programs) != 1)}"]
    for index, program in enumerate(programs):
        arguments = ", ".join(f"{s.name} {list_text(s.shape)}" for s in program.slots if s.role == "arg")
        conditions = f" where {' and '.join(program.dimensions.conditions)}" if program.dimensions else ""
        lines.append(f"{index}: {arguments or 'no tensor arguments'}{conditions}")
    return "\n".join([*lines, *map(str, explanations)])


def list_text(shape: Any) -> str:
    """A shape as text, symbols without quotes."""
    return f"[{', '.join(map(str, shape))}]"
