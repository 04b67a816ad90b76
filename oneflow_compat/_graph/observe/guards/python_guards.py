"""The guards of one program: whether all sources that build() read still hold what they held."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...program.python_values import MISSING, tensor_meta
from .checkers import new_checker
from .counters import Counter
from .disabled_functions import disables_only
from .places import changed_number
from .sources import CONTENTS, LAYOUT, OF_CAPTURE, Group, Guard, Mode, grouped
from .values import can_be_replaced, is_a, is_plain, is_same_plain

if TYPE_CHECKING:
    from ...program.locations import NumberSource
    from ..instrumentation.instrument import Site


@dataclass(frozen=True)
class Failure:
    """A guard or another test that failed: why another program was needed."""

    label: str
    old: str = ""
    new: str = ""
    code_location: tuple[Any, ...] | None = None
    number: NumberSource | None = None  # of a number that holds another one now


class PythonGuards:
    """Guards of one program. `check()` returns None while every source holds its value or an equal one."""

    def __init__(self, guards: Any, pinned: Any = (), unfollowed: Any = ()) -> None:
        self.guards, self.unfollowed = guards, unfollowed
        self.pinned = {*pinned}  # ids of objects that no equal one may replace
        # called once with a guard whose module was put into another mode
        self.mode_changed: Callable[..., Any] | None = None
        self.ending: Failure | None = None  # why no later call can use the program
        self.undo_writes: Callable[[], None] = _nothing  # takes back what build() changed, until it has run
        self.unrepeated: tuple[Any, str] | None = None  # (site, what) of a change that no run repeats
        self.kept_number: tuple[Site, str] | None = None  # (site, what) of a number that no run fills in
        self.numbers_changed: list[NumberSource] = []  # that build() reads and then changes itself
        self.stores: list[Any] = []  # what each run puts into containers outside (see hooks/writes.py)
        self.argument_facts: list[Any] = []  # what build() asked of its arguments
        self._free_of: dict[Any, Any] = {}
        self._slots: dict[Any, Any] = {}  # id(tensor) -> (container, key) from which the program reads it
        self.groups: list[Group] = []
        self._checker: Any = None
        self._is_checker_new = False  # built in a check that has not accepted all groups yet
        # None while nothing was written. Otherwise, or if the checker is new, check() looks closer
        self.first_change: Callable[[], int | None] = _unknown

    @property
    def counters(self) -> tuple[Guard, ...]:
        """The guards of the numbers that each call counts."""
        return tuple(guard for guard in self.guards if isinstance(guard.source, Counter))

    def tensor_ids(self) -> set[int]:
        """Return the ids of the tensors that the guards compare."""
        return {id(tensor) for guard in self.guards for tensor, _ in _tensor_pairs(guard.value, None)}

    def keep_settings(self, settings: list[Guard]) -> None:
        """Guard the settings of torch as they were when the capture began, before all else."""
        self.guards = [*settings, *self.guards]

    def add(self, other: PythonGuards) -> None:
        """Guard what another context observed, too."""
        self.guards += other.guards
        self.pinned |= other.pinned
        self.unfollowed = [*self.unfollowed, *other.unfollowed]
        self.kept_number = self.kept_number or other.kept_number
        undo_first, undo_last = other.undo_writes, self.undo_writes
        self.undo_writes = lambda: (undo_first(), undo_last())[1]
        self.ending = self.ending or other.ending

    def end_with_this_call(self, guard: Guard) -> None:
        """Let no later call use the program, because build() itself changed what this guard compares."""
        self.ending = _failure_of(guard)

    def end_for_reason(self, what: str, site: Site | None) -> None:
        """Let no later call use the program, because build() changes or reads what no program follows."""
        self.ending = Failure(what, code_location=site.code_location if site is not None else None)

    def keep_writes(self) -> None:
        """Forget what was there before build() wrote, because the program has run."""
        self.undo_writes = _nothing

    def bind(self, free_of: Any, named: Any, free: Any = (), compared: Any = ()) -> None:
        """Say where the program reads tensors from.

        `free_of`: id(tensor) -> index among the free tensors, or None for a tensor of a module or optimizer.
        `named` are the tensors of modules and optimizers, as entries with `container`, `key` and `tensor`.
        `free` are the free tensors. The layouts of those with an id in `compared` are compared elsewhere.
        """
        self._free_of = free_of
        self._slots = {id(entry.tensor): (entry.container, entry.key) for entry in named}
        for guard in self.guards:
            if guard.value is OF_CAPTURE:  # the capture has ended, so the source holds its own value again
                guard.value = guard.current()
        self._guard_layouts(free, compared)
        self._build()

    def _guard_layouts(self, free: Any, compared: Any) -> None:
        self.guards = [g for g in self.guards if g.source is not LAYOUT or id(g.owner) not in compared]
        guarded = {id(guard.owner) for guard in self.guards if guard.source is LAYOUT}
        self.guards += [
            Guard(LAYOUT, tensor, tensor_meta(tensor), "the layout of a tensor")
            for tensor in free
            if id(tensor) not in guarded
        ]

    def _build(self) -> None:
        self.groups = grouped(self.guards)
        self.tensor_guards = [guard for guard in self.guards if any(_tensor_pairs(guard.value, None))]
        self._groups_of: dict[int, set[int]] = {}  # id(owner of guards) -> their groups
        for index, group in enumerate(self.groups):
            for guard in group.guards:
                self._groups_of.setdefault(id(guard.owner), set()).add(index)
        self._checker = new_checker(self.groups)
        self.first_change = _unknown if self._is_checker_new else self._checker.first_change

    def check(self, rebind: Callable[[int, torch.Tensor], None]) -> Failure | None:
        """Return the guard that makes the program invalid, or None.

        `rebind(free index, tensor)` is called for a tensor that was replaced by one with the same metadata.
        """
        index = self._next_change(-1) if self._is_checker_new else self._checker.first_change()
        while index is not None:
            adoption = _Adoption(self)
            for guard in self.groups[index].guards:
                if not adoption.accepts_guard(guard):
                    return _failure_of(guard)
            tie = adoption.broken_tie()
            if tie is not None:
                return _failure_of(tie)
            groups = self.groups
            followed = adoption.apply(rebind)
            if self.groups is not groups:  # guards follow other objects now
                self._is_checker_new, self.first_change, index = True, _unknown, -1
            else:  # a value that is made anew at each read differs again, so no group is looked at twice
                self._checker.update(index)
                differing = (i - 1 for i in followed if not self.groups[i].holds())
                index = min([index, *differing])
            index = self._next_change(index)
        self._is_checker_new, self.first_change = False, self._checker.first_change
        return None

    def follow(self, owners: dict[int, Any]) -> list[int]:
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

    def _next_change(self, index: Any) -> Any:
        """Return the index of the next group that may have changed, or None."""
        if self._is_checker_new:  # it knows of no change before it
            return self._first_difference_after(index)
        return self._checker.first_change() if index < 0 else self._checker.first_change_after(index)

    def _first_difference_after(self, index: Any) -> Any:
        """Return the index of the next group with a source that holds another value, or None."""
        later = range(index + 1, len(self.groups))
        return next((i for i in later if not self.groups[i].holds()), None)

    def tell_mode(self, guard: Any) -> None:
        if self.mode_changed is not None:
            self.mode_changed(guard)


def _failure_of(guard: Guard) -> Failure:
    old, new = _shown(guard.value), _shown(guard.current())
    return Failure(guard.label, old, new, guard.code_location, changed_number(guard))


def _nothing() -> None:
    """There is nothing to take back."""


def _unknown() -> int:
    return 0


class _Adoption:
    """The changes of one check that make no difference: equal values, and tensors of the same kind."""

    def __init__(self, guards: Any) -> None:
        self.guards = guards
        self.values: list[Any] = []  # (guard, its value now)
        self.replaced: dict[Any, Any] = {}  # id(old object) -> (old, new)
        self.has_tensors = False
        self.moved: dict[Any, Any] = {}  # id(old tensor) -> (old, new)
        self._by_owner: dict[Any, Any] | None = None

    def accepts_guard(self, guard: Any) -> bool:
        current = guard.current()
        if current is guard.value:
            return True
        if isinstance(guard.source, Mode):
            self.guards.tell_mode(guard)
        elif disables_only(guard, current):
            pass
        elif not self.accepts(guard.value, current, guard.source is CONTENTS):
            return False
        self.values.append((guard, current))
        return True

    def accepts(self, old: Any, new: Any, elements: bool = False) -> bool:
        """Whether the program may go on with `new` where it had `old`."""
        if old is new:
            return True
        if old is MISSING or new is MISSING:
            return False
        if is_a(old, torch.Tensor):
            self.has_tensors = True
            is_alike = is_a(new, torch.Tensor) and tensor_meta(old) == tensor_meta(new)
            return is_alike and id(old) not in self.guards.pinned
        if type(old) is not type(new):
            return False
        if elements:
            return self.accepts_elements(old, new)
        if is_a(old, tuple):
            has_guards = type(old) is not tuple and bool(self._owned(old))
            return self.accepts_elements(old, new) and (not has_guards or self.accepts_object(old, new))
        if is_plain(old):
            return id(old) not in self.guards.pinned and is_same_plain(old, new)
        return self.accepts_object(old, new)

    def accepts_elements(self, old: Any, new: Any) -> bool:
        old, new = tuple.__iter__(old), tuple.__iter__(new)
        old, new = list(old), list(new)
        return len(old) == len(new) and all(map(self.accepts, old, new))

    def accepts_object(self, old: Any, new: Any) -> bool:
        """An object of the same class whose guarded sources are equal."""
        if id(old) in self.replaced:
            return self.replaced[id(old)][1] is new
        if id(old) in self.guards.pinned or not can_be_replaced(old):
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

    def _is_held(self, value: Any) -> bool:
        """Whether a guarded source still holds a value."""
        return any(guard.value is value and guard.current() is value for guard in self.guards.guards)

    def _owned(self, instance: Any) -> list[Any]:
        """[(guard, owner)] of the guards of an object and of its attributes."""
        if self._by_owner is None:
            self._by_owner = {}
            for guard in self.guards.guards:
                self._by_owner.setdefault(id(guard.owner), []).append(guard)
        owners = [instance, *([attributes] if (attributes := _attributes(instance)) is not None else [])]
        return [(guard, owner) for owner in owners for guard in self._by_owner.get(id(owner), ())]

    def broken_tie(self) -> Guard | None:
        """Return a guard of a tensor that was replaced under one of its names only, or None.

        Each tensor must be replaced by one tensor at all its sources, and no two tensors by the same.
        """
        if not self.has_tensors:
            return None
        successors: dict[Any, Any] = {}
        owners = {id(owner): target for owner, target in self._replaced_owners()}
        pairs: Iterator[tuple[Guard, Any, Any]] = (
            (guard, *pair)
            for guard in self.guards.tensor_guards
            for pair in _tensor_pairs(guard.value, guard.read(owners.get(id(guard.owner), guard.owner)))
        )
        for guard, old, new in pairs:
            if not is_a(new, torch.Tensor) or new is not old and tensor_meta(old) != tensor_meta(new):
                return guard
            if self.moved.setdefault(id(old), (old, new))[1] is not new:
                return guard
            if successors.setdefault(id(new), old) is not old:
                return guard
            if new is not old and not self._is_read_by_program(old, new):
                return guard
        return None

    def _replaced_owners(self) -> Iterator[Any]:
        """Yield (old owner of guards, new owner) of the replaced objects and of their attributes."""
        for old, new in self.replaced.values():
            yield old, new
            attributes = _attributes(old)
            if attributes is not None:
                yield attributes, _attributes(new)

    def _is_read_by_program(self, old: Any, new: Any) -> bool:
        """Whether the program reads the new tensor: from where it is named, or as a free tensor."""
        slot = self.guards._slots.get(id(old))
        if slot is not None:
            return slot[0].get(slot[1]) is new if isinstance(slot[0], dict) else slot[0][slot[1]] is new
        return self.guards._free_of.get(id(old), MISSING) is not None

    def apply(self, rebind: Any) -> Iterable[int]:
        """Let the program read the new tensors, and its guards look at what is there now.

        Return the groups of guards that have another owner, unless the groups are new.
        """
        guards = self.guards
        moved = [(old, new) for old, new in self.moved.values() if new is not old]
        # all are taken out before one is put in: two tensors may have been swapped
        indices = [guards._free_of.pop(id(old), MISSING) for old, _ in moved]
        slots = [guards._slots.pop(id(old), MISSING) for old, _ in moved]
        for (_, new), index, slot in zip(moved, indices, slots):
            if index is not MISSING:
                guards._free_of[id(new)] = index
                if index is not None:
                    rebind(index, new)
            if slot is not MISSING:
                guards._slots[id(new)] = slot
        for guard in guards.tensor_guards if self.has_tensors else ():
            guard.value = self._with_moved(guard.value)
        for guard, current in self.values:
            guard.value = current
        owners: dict[int, Any] = {}
        for old, new in moved:
            owners[id(old)], owners[id(old.__dict__)] = new, new.__dict__
        if any(guard.value is old for old, _ in self.replaced.values() for guard in guards.guards):
            for guard in guards.guards if owners else ():
                guard.owner = owners.get(id(guard.owner), guard.owner)
            self._follow_replaced()
            return ()
        for old, new in self._replaced_owners():
            owners[id(old)] = new
        for old, _ in self.replaced.values():
            for guard, owner in self._owned(old):
                guard.value = guard.read(owners[id(owner)])
        groups: list[int] = guards.follow(owners)
        return groups

    def _with_moved(self, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(self._with_moved, value))
        return self.moved[id(value)][1] if is_a(value, torch.Tensor) else value

    def _follow_replaced(self) -> None:
        """Guard the sources of the new objects from now on.

        The sources of an old object stay guarded if a guarded source still holds the object.
        """
        guards = self.guards
        for old, new in self.replaced.values():
            still = any(guard.value is old for guard in guards.guards)
            for guard, owner in self._owned(old):
                target = new if owner is old else _attributes(new)
                if still:
                    value = guard.read(target)
                    guards.guards.append(Guard(guard.source, target, value, guard.name, guard.site))
                else:
                    guard.owner, guard.value = target, guard.read(target)
        guards._build()


def _tensor_pairs(old: Any, new: Any) -> Iterator[Any]:
    """Yield the tensors in a value, or in a tuple of values, each with the value that is there now."""
    if is_a(old, torch.Tensor):
        yield old, new
    elif is_a(old, tuple):
        before = list(tuple.__iter__(old))
        now = list(tuple.__iter__(new)) if type(new) is type(old) else []
        for pair in zip(before, now if len(now) == len(before) else [None] * len(before)):
            yield from _tensor_pairs(*pair)


def _attributes(instance: Any) -> Any:
    try:
        return object.__getattribute__(instance, "__dict__")
    except (AttributeError, TypeError):
        return None


def _shown(value: Any) -> Any:
    if value is MISSING:
        return "nothing"
    if is_a(value, torch.Tensor):
        return f"a tensor {list(value.shape)} of {value.dtype}"
    try:
        return reprlib.repr(value)
    except Exception:  # a repr of the user's
        return f"an object of {type(value).__name__}"
