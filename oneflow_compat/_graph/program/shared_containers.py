"""Lists, dicts and objects that a run leaves in several places, so that each call makes one object for them.

    log = {"loss": loss.item()}
    self.history.append(log)      # what lies in the history
    return log                    # is what the caller gets

A run makes the trees that it stores and returns one by one. `share` then puts the first of equal objects into
the places of the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .object_layouts import ATTRIBUTE, SLOT, Part, layout_of
from .symbolic import SYMBOLIC_NUMBERS

Path = tuple[Part, ...]


class Container(NamedTuple):
    """A container, or an object with attributes, in a tree that build() stores or returns."""

    identity: int
    path: Path
    is_in_tuple: bool  # whether no other object can be put there


class Place(NamedTuple):
    """Where a container lies: the index of the tree, and the path in it."""

    tree: int
    path: Path


def containers_in(value: object, opens: Callable[[Any], bool]) -> tuple[Container, ...]:
    """Return the containers in a tree that can be changed. `opens(value)`: whether it is made anew."""
    return tuple(_containers_in(value, opens, (), False, set()))


def _containers_in(
    value: object, opens: Callable[[Any], bool], path: Path, is_in_tuple: bool, seen: set[int]
) -> Iterator[Container]:
    layout = layout_of(type(value))
    if layout is None or type(value) in SYMBOLIC_NUMBERS or not opens(value):
        return
    if layout.is_mutable:
        yield Container(id(value), path, is_in_tuple)
        if id(value) in seen:
            return
        seen.add(id(value))
    for part, content in layout.parts(value):
        yield from _containers_in(content, opens, (*path, part), not layout.is_mutable, seen)


def shared_places(
    stored: Sequence[Sequence[Container]], results: Sequence[Container]
) -> tuple[tuple[Place, ...], ...] | None:
    """Return the places of each container that lies in several. The tree of the results is the last one.

    The first place may be in a tuple. Return None if two of them are. Those of the results count once,
    because what occurs twice in them is one object already.
    """
    places: defaultdict[int, list[tuple[bool, Place]]] = defaultdict(list)
    for index, containers in enumerate([*stored, results]):
        in_tuples: set[int] = set()
        for identity, path, is_in_tuple in containers:
            if not (is_in_tuple and identity in in_tuples and containers is results):
                places[identity].append((not is_in_tuple, Place(index, path)))
            if is_in_tuple:
                in_tuples.add(identity)
    shared = [group for group in places.values() if len(group) > 1]
    if any(sum(not can_be_put for can_be_put, _ in group) > 1 for group in shared):
        return None
    return tuple(tuple(place for _, place in sorted(group, key=lambda entry: entry[0])) for group in shared)


def share(trees: list[Any], shared: Sequence[Sequence[Place]]) -> None:
    """Put the container at the first of some places to the others, in the trees that a run has made."""
    for first, *others in shared:
        value = _at(trees[first.tree], first.path)
        for tree, path in others:
            if path:
                _put(_at(trees[tree], path[:-1]), path[-1], value)
            else:
                trees[tree] = value


def _at(tree: object, path: Path) -> Any:
    for access, key in path:
        layout: Any = layout_of(type(tree))
        if access == ATTRIBUTE:
            tree = layout.attributes(tree)[key]
        else:
            tree = key.__get__(tree) if access == SLOT else layout.container.__getitem__(tree, key)
    return tree


def _put(owner: object, part: Part, value: object) -> None:
    access, key = part
    layout: Any = layout_of(type(owner))
    if access == ATTRIBUTE:
        layout.attributes(owner)[key] = value
    elif access == SLOT:
        key.__set__(owner, value)
    else:
        layout.container.__setitem__(owner, key, value)
