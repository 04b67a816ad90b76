"""Which guarded objects outlive build(): the others were made by build(), and only their guards keep them.

Guards hold their objects, so reference counts alone do not tell: an object may be in a cycle, for example a
closure that refers to itself. So this module does what the collector does. It takes the objects that guards
refer to and what build() made and they refer to, subtracts the references among them, and keeps those that
are still referenced, with all that these refer to.
"""

import collections
import functools
import gc
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from ..guards.guard import Guard
from ..guards.sources import CONTENTS
from ..guards.values import attributes_of, is_a

# They refer to everything of a capture. What only they refer to counts as alive.
_LRU_CACHE = type(functools.lru_cache(print))
_OF_CAPTURE = (FakeTensor, torch.fx.Node, torch.fx.Graph, type)


class MadeByBuild:
    """The objects that build() made.

    A capture pauses garbage collection, so these are the collector's youngest generation. If build() or
    another thread collects garbage all the same, the youngest objects are noted before they become older.
    """

    def __init__(self) -> None:
        gc.collect(0)
        self._older: set[int] = set()

    def __enter__(self) -> None:
        gc.callbacks.append(self._note_youngest)

    def __exit__(self, *exc: object) -> None:
        gc.callbacks.remove(self._note_youngest)

    def ids(self, attribute_dicts: dict[int, int]) -> set[int]:
        """Return the ids of the objects.

        `attribute_dicts` is {id(dict of attributes): id(its object)}. Python makes such a dict when it is
        first read, but it counts as old as its object.
        """
        created = self._older.union(map(id, gc.get_objects(0)))
        return created - {key for key, instance in attribute_dicts.items() if instance not in created}

    def _note_youngest(self, phase: str, info: object) -> None:
        if phase == "start":
            self._older.update(map(id, gc.get_objects(0)))


def outliving(
    guards: Sequence[Guard], opaque: Sequence[tuple[Any, ...]], created: set[int]
) -> tuple[list[Guard], list[tuple[Any, ...]]]:
    """Return the guards and the (object, site, text), perhaps with a Write, whose objects outlive build().

    `created` is what `MadeByBuild.ids()` returned. Nothing else may hold the objects while this runs.
    """
    references = collections.Counter(id(guard.owner) for guard in guards)
    references.update(id(value) for guard in guards for value in _values_of(guard))
    references.update(id(value) for value, *_ in opaque)
    references.update(id(value) for *_, write in opaque for value in getattr(write, "held", ()))
    owners = [guard.owner for guard in guards] + [value for value, *_ in opaque]
    objects = _with_what_build_made([value for value in owners if not _is_older(value, created)], created)
    del owners
    dead = objects.keys() - _alive(objects, references)
    return (
        [guard for guard in guards if is_a(guard.owner, type) or id(guard.owner) not in dead],
        [entry for entry in opaque if id(entry[0]) not in dead],
    )


def _is_older(value: object, created: set[int]) -> bool:
    """Whether an object was there before build(). The collector does not list all, so it may be older."""
    return gc.is_tracked(value) and id(value) not in created


def _with_what_build_made(roots: list[Any], created: set[int]) -> dict[int, object]:
    """Return {id: object} of the roots, and of the objects that build() made and they refer to."""
    objects: dict[int, object] = {}
    stack = roots
    while stack:
        value = stack.pop()
        if id(value) not in objects:
            objects[id(value)] = value
            stack += [v for v in gc.get_referents(value) if id(v) in created and not is_a(v, _OF_CAPTURE)]
    return objects


def _alive(objects: Mapping[int, object], references: Mapping[int, int]) -> set[int]:
    """Return the ids of the objects that something else refers to, directly or through others of them."""
    internal = collections.Counter(
        id(value) for each in objects.values() for value in _referents(each) if id(value) in objects
    )
    stack = [
        key
        for key, value in objects.items()
        if sys.getrefcount(value) > _BY_THIS_LOOP + internal[key] + references[key]
    ]
    alive: set[int] = set()
    while stack:
        key = stack.pop()
        if key not in alive:
            alive.add(key)
            stack += [id(v) for v in _referents(objects[key]) if id(v) in objects]
    return alive


def _referents(value: object) -> list[Any]:
    """Return the objects that an object refers to, its dict of attributes included.

    From Python 3.13 on, the attributes of most instances lie in the instance itself, and the collector does
    not list the dict that shows them.
    """
    referents = gc.get_referents(value)
    attributes = attributes_of(value) if sys.version_info >= (3, 13) else None
    if attributes is not None and not any(attributes is referent for referent in referents):
        referents.append(attributes)
    return referents


def guards_of_lasting(
    guards: Sequence[Guard],
    caches: Sequence[Any],
    created: set[int],
    attribute_dicts: Mapping[int, int],
    snapshots: Mapping[int, Any],
) -> list[Guard]:
    """Leave out the guards of objects that each call of build() makes anew: no cache has them.

    `caches` are objects from which the next call takes what this one put into them; caches of functions are
    added here. `snapshots` is {id(container): its contents before build() changed it}.
    """
    dicts = [guard.owner for guard in guards if type(guard.owner) is dict]
    dicts = [value for value in dicts if id(value) not in attribute_dicts]
    owners = {id(guard.owner) for guard in guards} - set(map(id, dicts))
    fresh = {owner for owner in owners if attribute_dicts.get(owner, owner) in created}
    fresh |= _dicts_of_build(dicts, created, snapshots)
    del dicts
    if not fresh:
        return list(guards)
    functions = [value for value in gc.get_objects() if type(value) is _LRU_CACHE]
    entries = [value for value in gc.get_referents(*functions) if type(value) is dict]
    cached = _with_what_build_made([*functions, *entries, *caches], created | fresh)
    return [guard for guard in guards if id(guard.owner) not in fresh or id(guard.owner) in cached]


def _dicts_of_build(dicts: list[Any], created: set[int], snapshots: Mapping[int, Any]) -> set[int]:
    """Return the ids of the dicts that build() made.

    Until Python 3.13 the collector lists a dict of numbers from the time on at which it gets another object,
    so its age is not known. A dict is one of build() if build() made all that refers to it, or put it there.
    """
    ids = set(map(id, dicts))
    old: set[int] = set()
    arguments = tuple(dicts)  # Python 3.14 lists the arguments of a call among the referrers
    for holder in gc.get_referrers(*arguments) if dicts else ():
        is_own = (
            holder is dicts
            or holder is arguments
            or isinstance(holder, (types.FrameType, Guard))
            or id(holder) in created
        )
        held = ids.intersection(map(id, gc.get_referents(holder))) if not is_own else set()
        before = snapshots.get(id(holder))
        old |= held if before is None else held.intersection(map(id, before))
    return ids - old


def _count_in_loop() -> int:
    objects = {0: object()}
    return next(sys.getrefcount(value) for _, value in objects.items())


_BY_THIS_LOOP = _count_in_loop()  # the dict, the variable of the loop, the argument of getrefcount()


def _values_of(guard: Guard) -> tuple[Any, ...]:
    """Return the objects that a guard holds as its value."""
    return guard.value if guard.source is CONTENTS and type(guard.value) is tuple else (guard.value,)
