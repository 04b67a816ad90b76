"""What one context of the observer gives: guards, and what no guard follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .failure import Failure
from .guard import Guard, Site

if TYPE_CHECKING:
    from ..program.locations import NumberSource

Unfollowed = tuple[Site | None, str]  # (site, what has no guard)


def _nothing() -> None:
    """There is nothing to take back."""


@dataclass(frozen=True)
class Observed:
    """What build() read, or step() of the optimizers, while it was observed."""

    guards: tuple[Guard, ...] = ()
    pinned: frozenset[int] = frozenset()  # ids of objects that no equal one may replace
    unfollowed: tuple[Unfollowed, ...] = ()
    ending: Failure | None = None  # why no later call can use the program
    undo_writes: Callable[[], None] = _nothing  # takes back what build() changed, until it has run
    unrepeated: Unfollowed | None = None  # a change that no run repeats
    kept_number: Unfollowed | None = None  # a number that no run fills in
    numbers_changed: tuple[NumberSource, ...] = ()  # that build() reads and then changes itself
    stores: tuple[Any, ...] = ()  # what each run puts into containers outside (observe/hooks/writes.py)
    argument_facts: tuple[Any, ...] = ()  # what build() asked of its arguments

    def with_guards(self, guards: Iterable[Guard], pinned: frozenset[int] = frozenset()) -> Observed:
        return replace(self, guards=(*self.guards, *guards), pinned=self.pinned | pinned)

    def after_settings(self, settings: Iterable[Guard]) -> Observed:
        """Guard the settings of torch as they were when the capture began, before all else."""
        return replace(self, guards=(*settings, *self.guards))

    def with_steps(self, steps: Observed) -> Observed:
        """Guard what the context of the optimizers' steps observed, too."""
        undo_first, undo_last = steps.undo_writes, self.undo_writes
        return replace(
            self,
            guards=(*self.guards, *steps.guards),
            pinned=self.pinned | steps.pinned,
            unfollowed=(*self.unfollowed, *steps.unfollowed),
            kept_number=self.kept_number or steps.kept_number,
            undo_writes=lambda: (undo_first(), undo_last())[1],
            ending=self.ending or steps.ending,
        )

    def ending_at(self, unrepeated: Unfollowed) -> Observed:
        """Let no later call use the program, because build() changes or reads what no program follows."""
        site, what = unrepeated
        location = site.code_location if site is not None else None
        ending = Failure(what, code_location=location)
        return replace(self, unrepeated=unrepeated, ending=ending, unfollowed=())
