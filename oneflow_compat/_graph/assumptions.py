"""What the next capture of a graph assumes, because earlier captures and calls taught it.

A capture assumes as much as possible to be the same in all calls: sizes, options of optimizers, outcomes of
branches. If an assumption fails, the next capture drops it. This is the record of what was learned, and from
what:

- calls that differ from those before: `argument_sizes`, `dependent_sizes`, `live_options`, `numbers`,
  `branches`
- captures that failed under an assumption (capture_attempts.py): `dependent_sizes`, `constant_options`,
  `rows_are_views`
- the first capture: `modes`

`explanations` says what each dropped assumption costs. `is_first_report` keeps a graph from repeating a
warning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from .argument_sizes import ArgumentSizes
from .explanations import Explanation, of_failure
from .varying_numbers import VaryingNumbers

if TYPE_CHECKING:
    from torch.nn import Module

    from .guards.failure import Failure
    from .program.locations import GroupOption
    from .program.symbolic import Branch


class DependentSizes(Enum):
    """How a capture represents sizes that depend on values, as of x[mask]."""

    NUMBERS = "numbers, until the values change"
    SYMBOLS = "symbols, because the values have changed"
    NUMBERS_ONLY = "numbers, because build() could not be captured with symbols"


@dataclass
class Assumptions:
    """The assumptions of one engine. Captures and calls update them; each capture reads them."""

    argument_sizes: ArgumentSizes = field(default_factory=ArgumentSizes)
    dependent_sizes: DependentSizes = DependentSizes.NUMBERS
    # whether x[i] with a 0-d integer tensor i must be a view, because build() writes to x[i] or to x
    rows_are_views: bool = False
    # optimizer index -> options that changed between calls; they are inputs of later programs
    live_options: dict[int, set[str]] = field(default_factory=dict)
    # locations of options that build() needs as constants; the others that it reads are inputs
    constant_options: set[GroupOption] = field(default_factory=set)
    numbers: VaryingNumbers = field(default_factory=VaryingNumbers)
    # branch on sizes -> outcome, of the last call that took another outcome than its program
    branches: dict[Branch, bool] = field(default_factory=dict)
    # whether a branch on a floating value has the outcome of the call before; else the capture raises
    branches_on_floats: bool = False
    # id of a module -> the module, and its train() or eval() at the first capture
    modes: dict[int, tuple[Module, bool]] | None = None
    explanations: list[Explanation] = field(default_factory=list)
    _changes: Counter[str] = field(default_factory=Counter)  # label of a guard -> how often it failed
    _local_code: dict[str, list[Hashable]] = field(default_factory=dict)  # name -> code among the arguments
    _cuts: list[Explanation] = field(default_factory=list)
    _reported: set[Hashable] = field(default_factory=set)  # subjects of warnings

    @property
    def has_symbols_for_dependent_sizes(self) -> bool:
        return self.dependent_sizes is DependentSizes.SYMBOLS

    def let_dependent_sizes_vary(self) -> bool:
        """Assume symbols after the values have changed. Return False if captures do so or cannot do so."""
        if self.dependent_sizes is not DependentSizes.NUMBERS:
            return False
        self.dependent_sizes = DependentSizes.SYMBOLS
        return True

    def add_live_options(self, optimizer: int, names: Iterable[str]) -> None:
        """Note options of an optimizer that change between calls."""
        self.live_options.setdefault(optimizer, set()).update(names)

    def explain(self, explanation: Explanation) -> None:
        """Note what keeps programs from serving more calls."""
        if explanation not in self.explanations:
            self.explanations.append(explanation)

    def explain_cuts(self, explanations: Iterable[Explanation]) -> None:
        """Note where a step is cut, in place of earlier cuts."""
        self.explanations[:] = [e for e in self.explanations if not any(e is cut for cut in self._cuts)]
        self._cuts = list(explanations)
        self.explanations += self._cuts

    def explain_failure(self, failure: Failure) -> tuple[Explanation, int]:
        """Note a failed guard in place of its last failure. Return the note and the count of failures."""
        self._changes[failure.label] += 1
        explanation = of_failure(failure, self._changes[failure.label])
        self.explanations[:] = [e for e in self.explanations if e.subject != explanation.subject]
        self.explanations.append(explanation)
        return explanation, self._changes[failure.label]

    def count_code(self, name: str, code: Hashable) -> int:
        """Note a function or class among the arguments. Return how many of this name there were, or 0 if it
        is one of them.
        """
        known = self._local_code.setdefault(name, [])
        if code in known:
            return 0
        known.append(code)
        return len(known)

    def is_first_report(self, subject: Hashable) -> bool:
        """Whether this graph has not reported the subject yet. It counts as reported from now on.

        Two texts that name objects by other addresses are one subject.
        """
        subject = re.sub(r"\b0x[0-9a-f]+", "0x", subject) if isinstance(subject, str) else subject
        is_first = subject not in self._reported
        self._reported.add(subject)
        return is_first
