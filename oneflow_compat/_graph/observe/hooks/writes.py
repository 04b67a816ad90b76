"""The writes of build() to objects outside: whether they leave another state there, and how to undo them.

    self.seen.append(1)       # a list is longer after each call
    self.ready = True         # after the first call, nothing changes any more

A program does not repeat the first write, so it serves one call only. It need not repeat the second one.
"""

from __future__ import annotations

import array
import collections
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...guards.guard import Guard
from ...guards.places import Place, value_at
from ...guards.sources import CELL, CONTENTS, Attribute, ClassAttribute, Item
from ...guards.values import WEAK_CONTAINERS, contents, is_a
from ...program.program import roots
from ...program.python_values import MISSING, is_constant, same_value
from ...program.pytree import flatten_containers, is_container_or_dataclass
from ...program.shared_containers import containers_in
from ...program.symbolic import is_run_value
from ..instrumentation.policy import stands_for_method
from .kept_numbers import holds_number

if TYPE_CHECKING:
    from ..instrumentation.instrument import Site


class Store:
    """A value that build() put into a container outside, taken apart. The value itself is not held."""

    def __init__(
        self,
        container: object,
        key: object,
        value: object,
        appends: bool = False,
        is_older: Callable[[object], bool] = lambda value: False,
    ) -> None:
        """`is_older(container)`: it was there before build(), and each run stores the container itself."""
        self.container, self.key, self.appends = container, key, appends
        self.older: list[int] = []  # ids of older containers in the value

        def is_kept(value: object) -> bool:
            is_kept = is_container_or_dataclass(value) and is_older(value)
            self.older += [id(value)] if is_kept else []
            return is_kept

        self.leaves, self.spec = flatten_containers(value, is_kept)
        # a run stores tensors, which the next run may read where it finds them
        self.is_state = _is_state(value)
        opens = lambda value: is_container_or_dataclass(value) and not is_older(value)
        self.containers = containers_in(value, opens)

    @property
    def owner(self) -> Any:
        """The object that gets the value. An equal object in its place would not get it."""
        return self.container.owner if isinstance(self.container, Place) else self.container

    @property
    def is_possible(self) -> bool:
        """Whether a run can make the value anew: numbers, texts and tensors, also in new containers."""
        return all(_is_computed(leaf) if is_run_value(leaf) else is_constant(leaf) for leaf in self.leaves)


@dataclass(frozen=True)
class Write:
    """A container, or an attribute or variable that is in no dict, as it was before the first write."""

    owner: Any
    key: Any  # the name of the attribute, CELL for a variable, None for a container
    before: Any  # the value, or the picture of the container
    site: Site
    keys: tuple[Any, ...] | None = None  # of a dict: what build() changed, once that is known

    @property
    def what(self) -> str:
        """What build() changes, in words."""
        if self.key is None:
            return f"{_article(type(self.owner).__name__)} that build() changes"
        if self.key is CELL:
            return "a variable of an enclosing function that build() changes"
        return f"the attribute {self.key!r} that build() changes"

    @property
    def held(self) -> tuple[Any, ...]:
        """The objects that this write refers to, once for each reference."""
        return (self.owner, *self.before) if self.key is None else (self.owner, self.before)

    def changed(self, is_followed: Callable[[int, Any], bool]) -> bool:
        """Whether another value is there now. `is_followed(id(dict), key)`: the program repeats a write."""
        if self.key is not None:
            return not same_value(self.before, self.current())
        now = contents(self.owner)
        if is_a(self.owner, WEAK_CONTAINERS):  # a cache, unless another value has the place of an old one
            new = _entries(now) if len(self.before) > 1 else {}
            return any(k in new and not same_value(v, new[k]) for k, v in _entries(self.before).items())
        if is_a(self.owner, dict):
            return any(not is_followed(id(self.owner), key) for key in _changed_keys(self.before, now))
        return not _is_same(self.before, now)

    def keeps_a_number(self, replayed: Collection[tuple[int, Any]]) -> bool:
        """Whether build() left a number here that only a run knows, and no run replaces it.

        `replayed` are the (id(dict), key) that each run assigns.
        """
        owner = self.owner
        if self.key is not None:
            return holds_number([self.current()])
        before, now = self.before, contents(owner)
        if is_a(owner, dict):
            changed = (key for key in _changed_keys(before, now) if (id(owner), key) not in replayed)
            return holds_number([dict.get(owner, key) for key in changed])
        old = set(map(id, before))
        return holds_number([value for value in now if id(value) not in old])

    def counts(self, counted: Collection[tuple[int, Any]]) -> bool:
        """Whether build() only counted here. `counted`: (id(owner), key) of the counters.

        A list with a counter has no other writes, and a dict may have some.
        """
        if self.key is not None:
            return (id(self.owner), None if self.key is CELL else self.key) in counted
        return not is_a(self.owner, dict) and any(owner == id(self.owner) for owner, _ in counted)

    def is_at(self, places: Collection[tuple[int, Any]]) -> bool:
        """Whether it is the write of an attribute or variable at one of the places."""
        return self.key is not None and (id(self.owner), None if self.key is CELL else self.key) in places

    def without_symbols(self, numbers: Mapping[tuple[int, Any], int | float]) -> Write:
        """Return the write with the numbers that were there, if symbols lay in their places."""
        keys = [key for owner, key in numbers if owner == id(self.owner)]
        if self.key is not None or not keys or not is_a(self.owner, dict):
            return self
        entries = _entries(self.before)
        entries.update((key, numbers[id(self.owner), key]) for key in keys if key in entries)
        return replace(self, before=(*entries, *entries.values()))

    def settled(self, is_followed: Callable[[int, Any], bool] = lambda owner, key: False) -> Write:
        """Return the write with the keys that it changed, because others may change later.

        Another list is a change even if it is equal: `log["kept"] = log["kept"][-2:]` after an append to the
        old list, which is taken back.
        """
        if self.key is not None or not is_a(self.owner, dict):
            return self
        keys = _changed_keys(self.before, contents(self.owner), operator.is_)
        return replace(self, keys=tuple(key for key in keys if not is_followed(id(self.owner), key)))

    def current(self) -> Any:
        """Return the value of the attribute or variable."""
        return value_at(self.owner, self.key)

    def guards(self, written: set[tuple[int, Any]], is_followed: Callable[[int, Any], bool]) -> list[Guard]:
        """Return guards of what the write left: a later call that finds it there need not write it.

        `written` are the (id(dict), key) that build() wrote.
        """
        owner, key, what, site = self.owner, self.key, self.what, self.site
        if key is CELL:
            return [Guard(CELL, owner, self.current(), what, site)]
        if key is not None:
            source = ClassAttribute(key) if is_a(owner, type) else Attribute(key)
            return [Guard(source, owner, source.read(owner), what, site)]
        if not is_a(owner, dict):
            return [Guard(CONTENTS, owner, contents(owner), what, site)]
        keys = [k for holder, k in written if holder == id(owner) and not is_followed(holder, k)]
        return [Guard(Item(k), owner, dict.get(owner, k, MISSING), None, site) for k in keys]

    def stores(
        self, is_followed: Callable[[int, Any], bool], is_older: Callable[[object], bool]
    ) -> list[Store] | None:
        """Return what each run can do as build() did, or None for another change.

        That is an assignment, an entry of a dict, or elements at the end of a list.
        """
        owner = self.owner
        if self.key is not None:
            value = self.current()
            return None if value is MISSING else [Store(Place(owner, self.key), None, value, False, is_older)]
        now, old = contents(owner), self.before
        if type(owner) in (list, collections.deque):
            if len(now) < len(old) or not _is_same(old, now[: len(old)]):
                return None
            return [Store(owner, i, now[i], True, is_older) for i in range(len(old), len(now))]
        if type(owner) in (dict, collections.OrderedDict, collections.defaultdict):
            before, after = _entries(old), _entries(now)
            if [key for key in after if key in before] != list(before):  # deleted, or in another order
                return None
            changed = (key for key in _changed_keys(old, now) if not is_followed(id(owner), key))
            return [Store(owner, key, after[key], False, is_older) for key in changed]
        return None

    def undo(self) -> None:
        """Restore what was there before."""
        if self.key is None:
            restore(self.owner, self.before, self.keys)
        elif self.key is CELL:
            self.owner.cell_contents = self.before
        elif self.before is MISSING:
            delattr(self.owner, self.key)
        else:
            setattr(self.owner, self.key, self.before)


def undo(writes: Iterable[Write], caches: Iterable[tuple[Any, int]]) -> None:
    """Take the writes back, the last one first, and the results that functions have kept meanwhile.

    `caches`: (function, how many results it had computed before). Its older results are dropped, too.
    """
    for write in reversed(list(writes)):
        write.undo()
    for function, misses in caches:
        if function.cache_info().misses > misses:
            function.cache_clear()


def _is_state(value: object) -> bool:
    """Whether it is a tensor, or a container of such, as the state of an LSTM is."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_state, value))
    return isinstance(value, torch.Tensor) or type(value) is dict and all(map(_is_state, value.values()))


def _is_computed(value: object) -> bool:
    """Whether each run computes the value in memory of its own: it is no view of a parameter or argument."""
    if not isinstance(value, torch.Tensor):
        return True
    node = getattr(value, "_of_node", None)
    return node is not None and all(root.op == "call_function" for root in roots([node]))


def place(owner: object, key: object, site: Site) -> Write:
    """Return the write of a variable, or of an attribute that is in no dict, such as a slot."""
    return Write(owner, key, Write(owner, key, None, site).current(), site)


def restore(container: Any, picture: tuple[Any, ...], keys: tuple[Any, ...] | None = None) -> None:
    """Give a container the elements of its picture again. `keys`: of a dict, those to restore."""
    if is_a(container, WEAK_CONTAINERS):
        container = container.data
    if is_a(container, dict):
        _restore_dict(container, picture, keys)
    elif is_a(container, list):
        list.__setitem__(container, slice(None), picture)
    elif is_a(container, collections.deque):
        collections.deque.clear(container)
        collections.deque.extend(container, picture)
    elif is_a(container, set):
        set.clear(container)
        set.update(container, picture[0])
    elif is_a(container, np.ndarray):
        container[...] = np.frombuffer(picture[0], container.dtype).reshape(container.shape)
    elif is_a(container, array.array):
        container[:] = array.array(picture[1], picture[0])
    elif is_a(container, bytearray):
        container[:] = picture[0]
    elif is_a(container, memoryview) and container.c_contiguous:
        container.cast("B")[:] = picture[0]


def _restore_dict(container: dict[Any, Any], picture: tuple[Any, ...], keys: tuple[Any, ...] | None) -> None:
    """Restore the entries, by the methods of the class in C: a class in Python may allow no change."""
    before = _entries(picture)
    cls: Any = collections.OrderedDict if isinstance(container, collections.OrderedDict) else dict
    for key in keys if keys is not None else _changed_keys(picture, contents(container), operator.is_):
        if key not in before:
            if dict.__contains__(container, key):
                cls.__delitem__(container, key)
        elif cls is collections.OrderedDict or not dict.__contains__(container, key):
            cls.__setitem__(container, key, before[key])
        else:
            dict.__setitem__(container, key, before[key])
    if set(container) == set(before) and tuple(container) != tuple(before):
        for key in before:
            value = dict.__getitem__(container, key)
            cls.__delitem__(container, key)
            cls.__setitem__(container, key, value)


def _entries(picture: tuple[Any, ...]) -> dict[Any, Any]:
    half = len(picture) // 2
    return dict(zip(picture[:half], picture[half:]))


def _changed_keys(
    before: tuple[Any, ...], now: tuple[Any, ...], is_same: Callable[[Any, Any], bool] = same_value
) -> list[Any]:
    old, new = _entries(before), _entries(now)
    if old.keys() == new.keys() and tuple(old) != tuple(new):  # move_to_end()
        return list(old)
    pairs = ((key, old.get(key, MISSING), new.get(key, MISSING)) for key in {**old, **new})
    return [key for key, was, now in pairs if not (is_same(was, now) or _is_of_capture(was))]


def _is_of_capture(value: object) -> bool:
    """Whether a value stood for a method of an object while build() was captured."""
    return type(value) is FunctionType and stands_for_method(value.__code__)


def _is_same(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    return len(before) == len(now) and all(map(same_value, before, now))


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
