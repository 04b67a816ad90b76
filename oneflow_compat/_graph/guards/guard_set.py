"""The guards of one program that are tested together, and what they adopt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch

from ..program.locations import Container
from ..program.python_values import tensor_meta
from .adoption import Adoption, Rebind, TensorPlaces, tensor_pairs
from .checkers import new_checker
from .failure import Failure, failure_of
from .guard import Group, Guard, grouped
from .sources import LAYOUT, OF_CAPTURE


class GuardSet:
    """Guards of one program. `check()` returns None while every source holds its value or an equal one.

    In the ordinary case nothing was written since the last call, and `first_change()` returns None.
    """

    def __init__(
        self, guards: Iterable[Guard], reads: TensorPlaces, pinned: frozenset[int] = frozenset()
    ) -> None:
        """`reads`: from where the program reads tensors.

        `pinned`: ids of objects that no equal one may replace.
        """
        self.guards, self.reads, self.pinned = list(guards), reads, pinned
        # called with a guard that adopts any value
        self.notice: Callable[[Guard], None] = _nothing
        self._is_checker_new = False  # built in a check that has not accepted all groups yet
        self._build()

    def _build(self) -> None:
        self.groups: list[Group] = grouped(self.guards)
        self.tensor_guards = [guard for guard in self.guards if any(tensor_pairs(guard.value, None))]
        self._groups_of: dict[int, set[int]] = {}  # id(owner of guards) -> their groups
        for index, group in enumerate(self.groups):
            for guard in group.guards:
                self._groups_of.setdefault(id(guard.owner), set()).add(index)
        self._checker = new_checker(self.groups)
        # None while nothing was written. Otherwise, or if the checker is new, check() looks closer
        self.first_change: Callable[[], int | None] = (
            _unknown if self._is_checker_new else self._checker.first_change
        )

    def check(self, rebind: Rebind) -> Failure | None:
        """Return the guard that makes the program invalid, or None.

        `rebind(free index, tensor)` is called for a tensor that was replaced by one with the same metadata.
        """
        index = self._next_change(-1) if self._is_checker_new else self._checker.first_change()
        while index is not None:
            adoption = Adoption(self.guards, self.tensor_guards, self.pinned, self.reads, self.notice)
            for guard in self.groups[index].guards:
                if not adoption.accepts_guard(guard):
                    return failure_of(guard)
            tie = adoption.broken_tie()
            if tie is not None:
                return failure_of(tie)
            owners = adoption.apply(rebind)
            if adoption.added_guards:
                self._is_checker_new, index = True, -1
                self._build()
            else:  # a value that is made anew at each read differs again, so no group is looked at twice
                followed = self._follow(owners)
                self._checker.update(index)
                differing = (i - 1 for i in followed if not self.groups[i].holds())
                index = min([index, *differing])
            index = self._next_change(index)
        self._is_checker_new, self.first_change = False, self._checker.first_change
        return None

    def _follow(self, owners: Mapping[int, object]) -> list[int]:
        """Guard layouts and attributes of other tensors from now on, with the values of the old ones.

        `owners`: {id(old owner of guards): the new one}. Return the groups of these guards.
        """
        groups = sorted(set().union(*(self._groups_of.pop(owner, ()) for owner in owners)))
        for index in groups:
            group = self.groups[index]
            group.owner = owners.get(id(group.owner), group.owner)
            for guard in group.guards:
                guard.owner = owners.get(id(guard.owner), guard.owner)
                self._groups_of.setdefault(id(guard.owner), set()).add(index)
            self._checker.update(index)
        return groups

    def _next_change(self, index: int) -> int | None:
        """Return the index of the next group that may have changed, or None."""
        if self._is_checker_new:  # it knows of no change before it
            return self._first_difference_after(index)
        return self._checker.first_change() if index < 0 else self._checker.first_change_after(index)

    def _first_difference_after(self, index: int) -> int | None:
        """Return the index of the next group with a source that holds another value, or None."""
        later = range(index + 1, len(self.groups))
        return next((i for i in later if not self.groups[i].holds()), None)


def settle_values(guards: Iterable[Guard]) -> None:
    """Let guards compare with what their sources hold now that the capture has put it back."""
    for guard in guards:
        if guard.value is OF_CAPTURE:
            guard.value = guard.current()


def with_layouts(
    guards: Iterable[Guard], free: Iterable[torch.Tensor], compared: Collection[int]
) -> list[Guard]:
    """Add guards of the layouts of free tensors. Those of tensors with an id in `compared` are left out."""
    kept = [guard for guard in guards if guard.source is not LAYOUT or id(guard.owner) not in compared]
    guarded = {id(guard.owner) for guard in kept if guard.source is LAYOUT}
    return kept + [
        Guard(LAYOUT, tensor, tensor_meta(tensor), "the layout of a tensor")
        for tensor in free
        if id(tensor) not in guarded
    ]


def named_reads(entries: Iterable[tuple[torch.Tensor, Container, Any]]) -> dict[int, tuple[Container, Any]]:
    """Return {id(tensor): (container, key)} of named tensors."""
    return {id(tensor): (container, key) for tensor, container, key in entries}


def _nothing(guard: Guard) -> None:
    """Nobody wants to be told."""


def _unknown() -> int:
    return 0
