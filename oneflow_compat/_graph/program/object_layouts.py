"""What an object consists of: its attributes, its slots, and its items if its class derives from a container.

An object is taken apart and made again without its constructor, its properties and its `__setattr__`. That
is possible if class statements made its class and all its bases, down to `object` or a container of Python.
Objects of a class in C, such as a lock, a file, a generator or an array, have no layout.
"""

from __future__ import annotations

import collections
import types
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .python_values import is_constant, is_python_class

ATTRIBUTE, SLOT, ITEM = "attribute", "slot", "item"
Part = tuple[str, Any]  # how a part is read, and the name of the attribute, the slot or the key of the item

_MAPPINGS = (collections.OrderedDict, collections.defaultdict, dict)
_SEQUENCES = (list, collections.deque, tuple)
_SETS = (set, frozenset)
_CONTAINERS: tuple[type, ...] = (*_MAPPINGS, *_SEQUENCES, *_SETS)
_BASES = (types.SimpleNamespace, object)  # bases of classes that are no containers
_IMMUTABLE = (tuple, frozenset)
_WITHOUT_LAYOUT = (torch.Tensor, torch.nn.Module, type)
Slot = types.MemberDescriptorType


@dataclass(frozen=True, eq=False)
class Layout:
    """How the objects of one class are taken apart, made and filled."""

    cls: type
    base: Any  # the class in C that makes the objects: a container of Python, SimpleNamespace or object
    slots: tuple[Slot, ...]
    has_attributes: bool

    @property
    def container(self) -> Any:
        return self.base if self.base in _CONTAINERS else None

    @property
    def is_mutable(self) -> bool:
        return self.container not in _IMMUTABLE

    @property
    def is_mapping(self) -> bool:
        return self.container in _MAPPINGS

    @property
    def is_user_class(self) -> bool:
        """Whether objects have an identity that a caller relies on: plain containers and tuples do not."""
        return self.cls not in _CONTAINERS and self.is_mutable

    def attributes(self, instance: object) -> dict[str, Any]:
        """Return the dict of the attributes."""
        attributes: dict[str, Any] = object.__getattribute__(instance, "__dict__")
        return attributes

    def parts(self, instance: object) -> list[tuple[Part, Any]]:
        """Return the parts of an object and their values, in their order."""
        parts: list[tuple[Part, Any]] = []
        for slot in self.slots:
            try:
                parts.append(((SLOT, slot), slot.__get__(instance)))
            except AttributeError:  # nothing was assigned to it
                pass
        if self.has_attributes:
            parts += [((ATTRIBUTE, name), value) for name, value in self.attributes(instance).items()]
        if self.is_mapping:
            parts += [((ITEM, key), value) for key, value in self.container.items(instance)]
        elif self.container in _SEQUENCES:
            elements = self.container.__iter__(instance)
            parts += [((ITEM, index), value) for index, value in enumerate(elements)]
        return parts

    def fixed_contents(self, instance: Any) -> Hashable:
        """Return what an object has besides its parts: the elements of a set, the limit of a deque."""
        if self.container in _SETS:
            return frozenset((type(element), element) for element in self.container.__iter__(instance))
        return instance.maxlen if self.container is collections.deque else None

    def has_constant_set(self, instance: object) -> bool:
        """Whether all elements of a set are constants; True for any other object."""
        return self.container not in _SETS or all(map(is_constant, self.container.__iter__(instance)))

    def empty(self, fixed_contents: Any) -> Any:
        """Return an object without parts, of a class that can be changed."""
        new = self.base.__new__(self.cls)
        if self.container is collections.deque:
            collections.deque.__init__(new, (), fixed_contents)
        elif self.container is set:
            set.update(new, (element for _, element in fixed_contents))
        return new

    def complete(self, fixed_contents: Any, parts: Sequence[Part], values: Sequence[Any]) -> Any:
        """Return an object with its items, of a class that cannot be changed."""
        if self.container is frozenset:
            return frozenset.__new__(self.cls, [element for _, element in fixed_contents])
        items = [value for (access, _), value in zip(parts, values) if access == ITEM]
        return self.container.__new__(self.cls, items)

    def fill(self, instance: object, parts: Sequence[Part], values: Sequence[Any]) -> None:
        """Give an object its parts."""
        for (access, key), value in zip(parts, values):
            if access == ATTRIBUTE:
                self.attributes(instance)[key] = value
            elif access == SLOT:
                key.__set__(instance, value)
            elif self.is_mapping:
                self.container.__setitem__(instance, key, value)
            elif self.is_mutable:
                self.container.append(instance, value)

    def replace_items(self, instance: Any, items: Any) -> None:
        """Give a container other items: those of a dict, or of a sequence."""
        self.container.clear(instance)
        if self.is_mapping:
            for key, value in items.items():
                self.container.__setitem__(instance, key, value)
        else:
            (set.update if self.container is set else self.container.extend)(instance, items)


_layouts: weakref.WeakKeyDictionary[type, Layout | None] = weakref.WeakKeyDictionary()


def layout_of(cls: type) -> Layout | None:
    """Return how the objects of a class are taken apart, or None if they cannot be."""
    try:
        return _layouts[cls]
    except KeyError:
        layout = _layouts[cls] = _make_layout(cls)
        return layout


def _make_layout(cls: type) -> Layout | None:
    if issubclass(cls, _WITHOUT_LAYOUT):
        return None
    base = next(base for base in (*_CONTAINERS, *_BASES) if issubclass(cls, base))
    slots: list[Slot] = []
    for parent in cls.__mro__:
        members = [member for member in vars(parent).values() if isinstance(member, Slot)]
        if parent is collections.defaultdict:
            slots += members  # the default_factory of a defaultdict
        elif parent in (*_CONTAINERS, *_BASES):
            continue
        elif not is_python_class(parent) or members and "__slots__" not in vars(parent):
            return None
        else:
            slots += members
    return Layout(cls, base, tuple(slots), bool(cls.__dictoffset__))
