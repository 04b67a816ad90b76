"""What a capture notes while build() runs: guards in the order of the reads, and what has no guard."""

from __future__ import annotations

import builtins
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ...guards.counters import Counting, Step, is_set_plainly, size_as_number
from ...guards.guard import Guard, Source
from ...guards.sources import CONTENTS
from ...guards.values import FREE_BASES, is_a
from ...program.python_values import MISSING, is_python_class
from ..messages import compared_with_argument, not_followed
from .unfollowed import FILE, calling_site

if TYPE_CHECKING:
    from torch.nn import Module

    from ..instrumentation.instrument import Site

# Their objects have equal copies, which `is` tells apart.
COPIES_ARE_EQUAL = frozenset([int, float, complex, str, bytes])
ANY_KEY = object()


class Notes:
    """The guards of one capture, the objects that they look at, and what no guard follows."""

    def __init__(self, on_module: Callable[[Module], None], ends_capture: bool) -> None:
        """`ends_capture`: a read that no guard can follow raises, so that the call runs in eager mode."""
        self.on_module, self.ends_capture = on_module, ends_capture
        self.guards: dict[Any, Any] = {}  # (source, id(owner)) -> Guard
        self.objects: dict[Any, Any] = {}  # id -> object, so that no other object gets its id
        self.attribute_dicts: dict[int, int] = {}  # id(dict of attributes) -> id(its object)
        # a capture replaces built-in functions, whose names have guards of their own where code reads them
        self.seen: set[Any] = {(id(vars(builtins)), CONTENTS)}
        self.complete: set[Any] = set()  # ids of containers that the capture itself changes
        self.state: set[int] = set()  # ids of those among them that are state of optimizers
        self.has_read_state = False  # whether the user's code read some of it
        self.written: set[Any] = set()  # keys of guards whose source build() wrote
        self.values_outside: set[int] = set()  # ids of what build() read from sources outside
        self.pinned: set[Any] = set()  # ids of objects that were compared by identity
        self.made: set[Any] = set()  # ids of modules that build() made
        self.twins: dict[int, Any] = {}  # id(object that stands for an argument) -> the argument
        self.modules: set[Any] = set()
        self.unfollowed: dict[Any, Any] = {}  # (label, location) -> (site, what it is)
        self.opaque: list[Any] = []  # (object, site, what it is): no guard if it outlives build()
        self.counted: dict[Any, Counting] = {}  # key of a guard -> the steps of a number that build() counts
        # the read of `variable += expression` -> its Counting and the number that it read
        self.begun_steps: dict[Site, tuple[Counting, Any]] = {}
        # (id(container), key) that build() assigned otherwise; key ANY_KEY: perhaps each of them
        self.assigned: set[Any] = set()
        self.weak: dict[int, weakref.ref[Any]] = {}  # id(object) -> the weak reference that build() follows

    def add(
        self, source: Source[Any], owner: object, value: object, label: str | None, site: Site | None
    ) -> None:
        """Guard a source, unless build() wrote it or read it before."""
        name = source, id(owner)
        if id(owner) in self.state and site is not None and site.is_user:
            self.has_read_state = True
        try:
            guard = self.guards.get(name)
            if guard is not None or name in self.written or id(owner) in self.complete:
                if guard is not None and guard.site is not None and guard.site.counts:
                    guard.site = site
                    self.count(name, value, site)
                return
        except TypeError:  # an unhashable key
            return
        if is_a(value, torch._C._FunctionBase):  # the context of an autograd function
            return
        self.objects[id(owner)] = owner
        self.guards[name] = Guard(source, owner, value, label, site)
        self.values_outside.add(id(value))
        self.count(name, value, site)

    def renew(self, container: object) -> None:
        """Let the guards of a container assume what the capture itself has put there, for good."""
        for guard in self.guards.values():
            if guard.owner is container:
                guard.value = guard.current()

    def leave_out(self, containers: Iterable[object]) -> None:
        """Make no guards of these containers, and drop those that there are."""
        added = {id(container): container for container in containers}
        self.objects.update(added)
        self.complete.update(added)
        for name in [name for name, guard in self.guards.items() if id(guard.owner) in added]:
            del self.guards[name]

    def count(self, name: tuple[Source[Any], int], value: object, site: Site | None) -> None:
        """Note a step of a number, if the site reads it in order to count."""
        if site is None or not site.counts:
            return
        counting = self.counted.setdefault(name, Counting(value))
        if site.step is None:
            counting.add(value, None)
        elif site.step.operand is not None:
            counting.add(value, Step(site.step.function, site.step.operand))
        elif type(value) in (int, float):
            self.begun_steps[site] = counting, value

    def count_by(self, operand: Any, site: Site) -> None:
        """Note the operand of the step that a site began. A size is fixed for the program."""
        counting, value = self.begun_steps.pop(site, (None, None))
        if counting is not None and site.step is not None:
            operand = size_as_number(operand)
            is_number = type(operand) in (int, float)
            counting.add(value, Step(site.step.function, operand) if is_number else None)

    def counters(self) -> Iterator[tuple[Guard, Counting]]:
        """Yield the guards of numbers that build() only counts, and their steps."""
        for name, counting in self.counted.items():
            guard = self.guards.get(name)
            if guard is None or guard.site is None or not guard.site.counts or not counting.steps:
                continue
            owner = guard.owner
            instance = self.objects.get(self.attribute_dicts.get(id(owner), 0))
            if (
                counting.is_complete
                and counting.is_at(guard.current())
                and self.assigned.isdisjoint([(id(owner), guard.source.key), (id(owner), ANY_KEY)])
                and (CONTENTS, id(owner)) not in self.guards
                and (id(owner), CONTENTS) not in self.seen
                and not self.twins.keys() & {id(owner), id(instance)}
                and is_set_plainly(guard.source, owner, instance)
            ):
                yield guard, counting

    def warn(self, site: Site, what: str) -> None:
        """Note a value that has no guard."""
        if what == FILE and not site.is_user and calling_site(through_torch=False) is None:
            return  # torch reads a file of code, for example
        site = site if site.is_user else calling_site() or site
        if self.ends_capture:
            raise not_followed(site, what)
        self.unfollowed.setdefault((site.expression, what), site)

    def no_guard(self, value: object, site: Site, what: str) -> None:
        """Note that an object has no guard. A step ends before the instruction changes an older object."""
        if self.ends_capture and id(value) in self.values_outside:
            raise not_followed(site if site.is_user else calling_site() or site, what)
        self.opaque.append((value, site, what))

    def note_module(self, module: Module) -> None:
        """A module is met for the first time: one that build() makes now, or one that was there."""
        if id(module) in self.modules or id(module) in self.made:
            return
        self.objects[id(module)] = module
        if "_modules" not in object.__getattribute__(module, "__dict__"):
            self.made.add(id(module))
        else:
            self.modules.add(id(module))
            self.on_module(module)

    def note_weak(self, references: Iterable[weakref.ref[Any]]) -> None:
        """Let no guard keep the objects of weak references alive."""
        for reference in references:
            target = weakref.ref.__call__(reference)  # that of a method is its object
            if target is not None:
                self.weak[id(target)] = reference

    def pin(self, value: object) -> None:
        """Another object may not replace this one: it was compared by identity."""
        if type(value) in COPIES_ARE_EQUAL or is_python_class(type(value)) and not is_a(value, FREE_BASES):
            self.pinned.add(id(value))
            self.objects[id(value)] = value

    def compare_twins(self, left: object, right: object) -> None:
        """Raise if an argument is compared by identity with itself: build() has another object for it."""
        for twin, value in ((left, right), (right, left)):
            if self.twins.get(id(twin), MISSING) is value:
                raise compared_with_argument(type(value))
