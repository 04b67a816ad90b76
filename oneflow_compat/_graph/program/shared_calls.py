"""SharedCalls: what the ranks compare of a captured program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import CodeLocation, location_text


@dataclass(frozen=True, eq=False)
class SharedCalls:
    """The calls of a program that must be the same on every rank, a line each, and where build() makes them.

    `digest` is a number of 56 bits, never 0. Programs with equal lines have equal digests.
    """

    digest: int
    lines: tuple[str, ...]
    locations: tuple[CodeLocation | None, ...]


def first_difference(programs: Sequence[SharedCalls]) -> list[tuple[str, str]]:
    """Return the first line in which the programs of the ranks differ, with its location, for each rank.

    The line of a program that ends earlier is "nothing more".
    """
    longest = max(len(program.lines) for program in programs)
    for index in range(longest):
        lines = [_line(program, index) for program in programs]
        if len({line for line, _ in lines}) > 1:
            return lines
    return [("", "")] * len(programs)


def _line(program: SharedCalls, index: int) -> tuple[str, str]:
    if index >= len(program.lines):
        return "nothing more", ""
    location = program.locations[index]
    return program.lines[index], location_text(location) if location is not None else ""
