"""Whether a program may go on with what replaced a guarded value: the only place that decides this."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from ..program.locations import Container
from ..program.python_values import MISSING, get_item, tensor_meta
from .counters import Counter
from .disabled_functions import disables_only
from .guard import Guard, Policy
from .sources import CONTENTS
from .values import can_be_replaced, is_a, is_plain, is_same_plain

Rebind = Callable[[int, torch.Tensor], None]  # called with the index of a free tensor, and what replaced it


@dataclass(frozen=True)
class TensorPlaces:
    """From where a program reads tensors, by their ids."""

    named: dict[int, tuple[Container, Any]] = field(default_factory=dict)  # -> (container, key)
    # -> the index among the free tensors; None for a tensor of a module or optimizer, which has no other name
    free: dict[int, int | None] = field(default_factory=dict)

    def finds(self, old: torch.Tensor, new: torch.Tensor) -> bool:
        """Whether the program reads the new tensor: from where it is named, or as a free tensor."""
        slot = self.named.get(id(old))
        if slot is not None:
            return get_item(*slot) is new
        return self.free.get(id(old), MISSING) is not None

    def move(self, moved: Sequence[tuple[torch.Tensor, torch.Tensor]], rebind: Rebind) -> None:
        """Read each new tensor where the program read the old one."""
        # all are taken out before one is put in: two tensors may have been swapped
        indices = [self.free.pop(id(old), MISSING) for old, _ in moved]
        slots = [self.named.pop(id(old), None) for old, _ in moved]
        for (_, new), index, slot in zip(moved, indices, slots):
            if index is not MISSING:
                self.free[id(new)] = index
                if index is not None:
                    rebind(index, new)
            if slot is not None:
                self.named[id(new)] = slot


class Adoption:
    """The changes of one check with which a program goes on, by the policies of their guards.

    After `cfg = Config(rate=0.1)` where build() read `cfg.rate`, the guard of `cfg` finds another object. It
    is adopted if each guarded source of the old object holds an equal value in the new one. A tensor is
    adopted if it has the metadata of the old one, and if it replaced that at all guarded sources.
    """

    def __init__(
        self,
        guards: list[Guard],
        tensor_guards: Sequence[Guard],
        pinned: frozenset[int],
        reads: TensorPlaces,
        notice: Callable[[Guard], None],
    ) -> None:
        """`guards` are all guards of the program, and `tensor_guards` those with tensors in their values.

        `pinned`: ids of objects that no equal one may replace.
        """
        self.guards, self.tensor_guards, self.pinned, self.reads = guards, tensor_guards, pinned, reads
        self.notice = notice
        self.values: list[tuple[Guard, object]] = []  # (guard, its value now)
        self.replaced: dict[int, tuple[object, object]] = {}  # id(old object) -> (old, new)
        self.has_tensors = False
        self.added_guards = False  # for a replaced object that a guarded source still holds
        self.moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # id(old tensor) -> (old, new)
        self._by_owner: dict[int, list[Guard]] | None = None

    def accepts_guard(self, guard: Guard) -> bool:
        current = guard.current()
        if current is guard.value:
            return True
        if guard.policy is Policy.FAIL:
            return guard.source.is_same(guard.value, current)
        if guard.policy is Policy.NOTICE:
            self.notice(guard)
        elif not disables_only(guard, current) and not self.accepts(
            guard.value, current, guard.source is CONTENTS
        ):
            return False
        self.values.append((guard, current))
        return True

    def accepts(self, old: object, new: object, elements: bool = False) -> bool:
        """Whether the program may go on with `new` where it had `old`."""
        if old is new:
            return True
        if old is MISSING or new is MISSING:
            return False
        if is_a(old, torch.Tensor):
            self.has_tensors = True
            return is_a(new, torch.Tensor) and _has_same_metadata(old, new) and id(old) not in self.pinned
        if type(old) is not type(new):
            return False
        if elements:
            return self.accepts_elements(old, new)
        if is_a(old, tuple):
            has_guards = type(old) is not tuple and bool(self._owned(old))
            return self.accepts_elements(old, new) and (not has_guards or self.accepts_object(old, new))
        if is_plain(old):
            return id(old) not in self.pinned and is_same_plain(old, new)
        return self.accepts_object(old, new)

    def accepts_elements(self, old: Any, new: Any) -> bool:
        before, now = list(tuple.__iter__(old)), list(tuple.__iter__(new))
        return len(before) == len(now) and all(map(self.accepts, before, now))

    def accepts_object(self, old: object, new: object) -> bool:
        """An object of the same class whose guarded sources are equal."""
        if id(old) in self.replaced:
            return self.replaced[id(old)][1] is new
        if id(old) in self.pinned or not can_be_replaced(old):
            return False
        owned = self._owned(old)
        if not owned:
            return False
        if any(isinstance(guard.source, Counter) for guard, _ in owned) and self._is_held(old):
            return False  # counters of two objects where the program has those of one
        self.replaced[id(old)] = old, new
        for guard, owner in owned:
            current = guard.read(new if owner is old else _attributes(new))
            if current is not guard.value and not self.accepts(
                guard.value, current, guard.source is CONTENTS
            ):
                return False
        return True

    def _is_held(self, value: object) -> bool:
        """Whether a guarded source still holds a value."""
        return any(guard.value is value and guard.current() is value for guard in self.guards)

    def _owned(self, instance: object) -> list[tuple[Guard, object]]:
        """[(guard, owner)] of the guards of an object and of its attributes."""
        if self._by_owner is None:
            self._by_owner = {}
            for guard in self.guards:
                self._by_owner.setdefault(id(guard.owner), []).append(guard)
        owners = [instance, *([attributes] if (attributes := _attributes(instance)) is not None else [])]
        return [(guard, owner) for owner in owners for guard in self._by_owner.get(id(owner), ())]

    def broken_tie(self) -> Guard | None:
        """Return a guard of a tensor that was replaced under one of its names only, or None.

        Each tensor must be replaced by one tensor at all its sources, and no two tensors by the same.
        """
        if not self.has_tensors:
            return None
        successors: dict[int, torch.Tensor] = {}
        owners = {id(owner): target for owner, target in self._replaced_owners()}
        pairs: Iterator[tuple[Guard, torch.Tensor, Any]] = (
            (guard, *pair)
            for guard in self.tensor_guards
            for pair in tensor_pairs(guard.value, guard.read(owners.get(id(guard.owner), guard.owner)))
        )
        for guard, old, new in pairs:
            if not is_a(new, torch.Tensor) or new is not old and not _has_same_metadata(old, new):
                return guard
            if self.moved.setdefault(id(old), (old, new))[1] is not new:
                return guard
            if successors.setdefault(id(new), old) is not old:
                return guard
            if new is not old and not self.reads.finds(old, new):
                return guard
        return None

    def _replaced_owners(self) -> Iterator[tuple[object, object]]:
        """Yield (old owner of guards, new owner) of the replaced objects and of their attributes."""
        for old, new in self.replaced.values():
            yield old, new
            attributes = _attributes(old)
            if attributes is not None:
                yield attributes, _attributes(new)

    def apply(self, rebind: Rebind) -> Mapping[int, object]:
        """Let the program read the new tensors, and its guards compare with what is there now.

        Return {id(old owner of guards): the new one}. If `self.added_guards`, the guards follow already.
        """
        moved = [(old, new) for old, new in self.moved.values() if new is not old]
        self.reads.move(moved, rebind)
        for guard in self.tensor_guards if self.has_tensors else ():
            guard.value = self._with_moved(guard.value)
        for guard, current in self.values:
            guard.value = current
        owners: dict[int, object] = {}
        for before, now in moved:
            owners[id(before)], owners[id(before.__dict__)] = now, now.__dict__
        if any(guard.value is old for old, _ in self.replaced.values() for guard in self.guards):
            for guard in self.guards if owners else ():
                guard.owner = owners.get(id(guard.owner), guard.owner)
            self._follow_replaced()
            self.added_guards = True
            return owners
        for old, new in self._replaced_owners():
            owners[id(old)] = new
        for old, _ in self.replaced.values():
            for guard, owner in self._owned(old):
                guard.value = guard.read(owners[id(owner)])
        return owners

    def _with_moved(self, value: object) -> object:
        if type(value) is tuple:
            return tuple(map(self._with_moved, value))
        return self.moved[id(value)][1] if is_a(value, torch.Tensor) else value

    def _follow_replaced(self) -> None:
        """Guard the sources of the new objects from now on.

        The sources of an old object stay guarded if a guarded source still holds the object.
        """
        for old, new in self.replaced.values():
            is_still_held = any(guard.value is old for guard in self.guards)
            for guard, owner in self._owned(old):
                target = new if owner is old else _attributes(new)
                if is_still_held:
                    value = guard.read(target)
                    self.guards.append(Guard(guard.source, target, value, guard.name, guard.site))
                else:
                    guard.owner, guard.value = target, guard.read(target)


def tensor_pairs(old: Any, new: object) -> Iterator[tuple[torch.Tensor, object]]:
    """Yield the tensors in a value, or in a tuple of values, each with the value that is there now."""
    if is_a(old, torch.Tensor):
        yield old, new
    elif is_a(old, tuple):
        before = list(tuple.__iter__(old))
        now: list[object] = (
            list(tuple.__iter__(cast("tuple[object, ...]", new))) if type(new) is type(old) else []
        )
        for pair in zip(before, now if len(now) == len(before) else [None] * len(before)):
            yield from tensor_pairs(*pair)


def _has_same_metadata(old: Any, new: Any) -> bool:
    return tensor_meta(old) == tensor_meta(new)


def _attributes(instance: object) -> Any:
    try:
        return object.__getattribute__(instance, "__dict__")
    except (AttributeError, TypeError):
        return None
