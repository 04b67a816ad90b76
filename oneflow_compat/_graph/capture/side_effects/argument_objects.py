"""Objects among the arguments: build() gets twins of them, and each call repeats what it did to the twins.

A twin is a new object of the same class, with symbolic tensors. The parts of a twin that build() assigns are
results of the program. Each call assigns them to the caller's object, and writes in place to the tensors of
such an object reach it, too. A list, a tuple or a dict of the caller's is no object: its changes stay inside
the call, as in OneFlow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ...errors import GraphTypeError
from ...program.captured import ObjectChange
from ...program.object_layouts import ITEM, Part, layout_of
from ...program.object_trees import LeafOfArgument, OfArgument, Opened, Rebuilding, Same, SameLeaf
from ...program.python_values import is_constant, same_value
from ...program.pytree import with_sizes

if TYPE_CHECKING:
    from torch.utils._pytree import TreeSpec


class ArgumentObjects:
    """The twins of the objects among the arguments of one call of build()."""

    def __init__(self, spec: TreeSpec, leaves: Sequence[Any]) -> None:
        rebuilding = Rebuilding(leaves)
        self.tree = rebuilding.value_of(with_sizes(spec))
        self._twins = rebuilding.objects
        positions, indices = owned_by_objects(spec)
        self._positions = {id(self._twins[position]): position for position in positions}
        self._indices = {
            id(leaves[index]): index for index in indices if isinstance(leaves[index], torch.Tensor)
        }
        self._before = {position: _State.of(twin) for position, twin in self._twins.items()}
        self._registered = [(node, _registered_children(node)) for node in rebuilding.registered]

    def twins(self, arguments: Sequence[Any]) -> dict[int, Any]:
        """Return {id(twin): the argument}, for the objects of the call by their positions."""
        return {id(twin): arguments[position] for position, twin in self._twins.items()}

    def node_of(self, value: Any) -> TreeSpec | None:
        """Return the node of a twin: the object that it stands for."""
        position = self._positions.get(id(value))
        return None if position is None else pytree.TreeSpec(OfArgument, position, [])

    def node_in_argument(self, value: Any) -> TreeSpec | None:
        """Do the same inside of a changed object, whose tensors stay the caller's."""
        index = self._indices.get(id(value))
        return self.node_of(value) if index is None else pytree.TreeSpec(LeafOfArgument, index, [])

    def changes(self) -> tuple[list[ObjectChange], list[Any]]:
        """Return what build() changed in the twins, and the values that it assigned."""
        changes: list[ObjectChange] = []
        values: list[Any] = []
        for position in sorted(self._positions.values()):
            before, now = self._before[position], _State.of(self._twins[position])
            if now.cls is not before.cls:
                raise GraphTypeError(
                    f"build() changes the class of an argument from {before.cls.__qualname__} to"
                    f" {now.cls.__qualname__}",
                    "Make an object of that class in build(), and return it.",
                )
            for part, value in now.attributes.items():
                if part not in before.attributes or not _is_same(before.attributes[part], value):
                    changes.append(ObjectChange(position, *part))
                    values.append(value)
            deleted = [part for part in before.attributes if part not in now.attributes]
            changes += [ObjectChange(position, *part, is_deleted=True) for part in deleted]
            if not now.has_same_items(before):
                changes.append(ObjectChange(position, ITEM, None))
                values.append(now.container())
        return changes, values

    def changes_container(self) -> bool:
        """Whether build() changed a list, a dict or a registered node that belongs to no object."""
        owned = set(self._positions.values())
        containers = [position for position in self._twins if position not in owned]
        return any(
            not _State.of(self._twins[position]).has_same_items(self._before[position])
            for position in containers
        ) or any(not _are_same(children, _registered_children(node)) for node, children in self._registered)


@dataclass(frozen=True, eq=False)
class _State:
    """The parts of an object at one moment."""

    cls: type
    attributes: dict[Part, Any]  # and slots
    items: dict[Any, Any]  # key or index -> value
    fixed_contents: Any

    @staticmethod
    def of(instance: Any) -> _State:
        layout = layout_of(type(instance))
        if layout is None:
            return _State(type(instance), {}, {}, None)
        parts = layout.parts(instance)
        attributes = {part: value for part, value in parts if part[0] != ITEM}
        items = {key: value for (access, key), value in parts if access == ITEM}
        return _State(layout.cls, attributes, items, layout.fixed_contents(instance))

    def has_same_items(self, before: _State) -> bool:
        return (
            self.fixed_contents == before.fixed_contents
            and list(self.items) == list(before.items)
            and _are_same(self.items.values(), before.items.values())
        )

    def container(self) -> dict[Any, Any] | list[Any] | set[Any]:
        """Return the items in a plain container."""
        layout = layout_of(self.cls)
        if layout is not None and layout.is_mapping:
            return self.items
        is_set = isinstance(self.fixed_contents, frozenset)
        return {element for _, element in self.fixed_contents} if is_set else list(self.items.values())


def _registered_children(node: Any) -> list[Any]:
    """Return the children of an object whose class is registered with torch's pytree."""
    return list(pytree.SUPPORTED_NODES[type(node)].flatten_fn(node)[0])


def _is_same(before: Any, now: Any) -> bool:
    return before is now or is_constant(before) and is_constant(now) and same_value(before, now)


def _are_same(before: Collection[Any], now: Collection[Any]) -> bool:
    return len(before) == len(now) and all(map(_is_same, before, now))


def owned_by_objects(spec: TreeSpec) -> tuple[set[int], set[int]]:
    """Return the positions of the objects that belong to an object of a user's class, and indices of leaves.

    The caller sees what build() does to them.
    """
    walk = _Owned()
    walk.visit(spec, False)
    while walk.again:  # an object that was first met outside
        position = walk.again.pop()
        walk.index = walk.first_index[position]
        walk.visit(walk.specs[position], True)
    return walk.positions, walk.indices


class _Owned:
    """A walk through a spec: which of its nodes belong to an object of a user's class."""

    def __init__(self) -> None:
        self.index = 0  # index of the next leaf
        self.positions: set[int] = set()
        self.indices: set[int] = set()
        self.specs: dict[int, TreeSpec] = {}
        self.first_index: dict[int, int] = {}
        self.again: set[int] = set()

    def visit(self, spec: TreeSpec, is_inside: bool) -> None:
        if spec.is_leaf():
            if is_inside:
                self.indices.add(self.index)
            self.index += 1
        elif spec.type is Opened:
            form = spec.context
            self.specs[form.position], self.first_index[form.position] = spec, self.index
            is_inside = is_inside or form.layout.is_user_class
            if is_inside and form.layout.is_mutable:
                self.positions.add(form.position)
        elif is_inside and spec.type is Same and spec.context not in self.positions:
            self.again.add(spec.context)
        elif is_inside and spec.type is SameLeaf:
            self.indices.add(spec.context)
        for child in spec.children():
            self.visit(child, is_inside)
