"""Counters: numbers that build() only counts. Each call of the program counts them, whatever their value is.

`self.calls += 1` in forward() reads the attribute, but nothing of the program depends on what it reads. So
the guard compares the class of the number only, and the epilogue repeats the steps on the number that is
there: eager mode rounds after each of them.
"""

from __future__ import annotations

import collections
import inspect
import operator
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..code_origins import is_of_this_package
from ..program.live_numbers import live_number
from .guard import Guard, Source, Writable
from .sources import Attribute, Cell, Element, Item

_NUMBERS = (int, float)
_SUMS = (operator.add, operator.sub)
# They set and do nothing else.
_SETTERS_OF_ATTRIBUTES = (object.__setattr__, types.SimpleNamespace.__setattr__)
_SETTERS_OF_ITEMS = (
    dict.__setitem__,
    collections.OrderedDict.__setitem__,
    list.__setitem__,
    collections.deque.__setitem__,
)


@dataclass(frozen=True)
class Step:
    """What a counting statement does to its variable: `value -= 2` is Step(operator.sub, 2)."""

    function: Callable[[Any, Any], Any]
    operand: int | float


@dataclass(frozen=True)
class Counter(Source[Any]):
    """The class of a number that build() only counts: the source `key` has the number."""

    key: Writable[Any]
    steps: tuple[Step, ...] = ()  # of each call

    def read(self, owner: object) -> Any:
        return type(self.key.read(owner))

    def count(self, owner: object) -> None:
        """Repeat the steps of a call."""
        value = self.key.read(owner)
        for step in self.steps:
            value = step.function(value, step.operand)
        self.key.write(owner, value)


class Counting:
    """The steps of one source while build() runs. They count only if nothing else set the source."""

    def __init__(self, value: Any) -> None:
        self.before = self.value = value
        self.steps: list[Step] = []
        self.is_complete = type(value) in _NUMBERS

    def add(self, value: object, step: Step | None) -> None:
        """Note a step from a value that build() has just read."""
        self.is_complete = self.is_complete and step is not None and self.is_at(value)
        if self.is_complete and step is not None:
            self.steps.append(step)
            self.value = step.function(self.value, step.operand)

    def is_at(self, value: object) -> bool:
        value = size_as_number(value)  # it may be the sum with a size
        return type(value) is type(self.value) and bool(value == self.value)

    def of_each_call(self) -> tuple[Step, ...]:
        """Return the steps, those of an integer in one."""
        if type(self.value) is int and all(step.function in _SUMS for step in self.steps):
            return (Step(operator.add, self.value - self.before),)
        return tuple(self.steps)


def size_as_number(value: Any) -> Any:
    """Return a size as its number, which is fixed for the program. Return another value as it is."""
    is_size = type(value) is torch.SymInt and live_number(value) is None and value.node.has_hint()
    return int(value) if is_size else value


def become_counter(guard: Guard, counting: Counting) -> None:
    """Turn the guard of a number into that of a counter, and set the number back."""
    source = guard.source
    assert isinstance(source, Writable), "an assignment set the number"
    source.write(guard.owner, counting.before)
    guard.source, guard.value = Counter(source, counting.of_each_call()), type(counting.before)


def count(counters: Sequence[Guard]) -> None:
    """Repeat the steps of a call."""
    for guard in counters:
        guard.source.count(guard.owner)  # type: ignore[attr-defined]


def is_set_plainly(source: Source[Any], owner: Any, instance: object) -> bool:
    """Whether an assignment to the source runs no code of the user.

    `instance` is the object whose attributes the owner holds, or None for another owner.
    """
    if isinstance(source, Cell):
        return True
    if isinstance(source, Attribute):
        return _sets_attributes(type(owner)) and _is_slot(type(owner), source.key)
    if instance is not None:
        return _sets_attributes(type(instance)) and not _is_described(type(instance), source.key)
    return isinstance(source, (Item, Element)) and type(owner).__setitem__ in _SETTERS_OF_ITEMS


def _sets_attributes(cls: type) -> bool:
    set_attribute: Any = cls.__setattr__
    return set_attribute in _SETTERS_OF_ATTRIBUTES or passes_on(getattr(set_attribute, "__code__", None))


def passes_on(code: types.CodeType | None) -> bool:
    """Whether this is a __setattr__ that sets a number as object.__setattr__ does: of modules and graphs."""
    return (
        code is not None
        and code.co_name == "__setattr__"
        and (code is torch.nn.Module.__setattr__.__code__ or is_of_this_package(code.co_filename))
    )


def _is_slot(cls: type, name: str) -> bool:
    return type(inspect.getattr_static(cls, name, None)) is types.MemberDescriptorType


def _is_described(cls: type, name: str) -> bool:
    return hasattr(type(inspect.getattr_static(cls, name, None)), "__set__")
