"""The sorts of sources: keys of dicts, attributes, variables of closures, layouts of tensors, settings."""

from __future__ import annotations

import collections
import inspect
import operator
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

import torch
from torch._C._dynamo import guards as guards_of_torch

from ..program.python_values import MISSING, tensor_meta
from .guard import Group, Guard, Policy, Source, Writable
from .layouts import is_compared_with_others, layout_check
from .native import PRESENT, Features, NativeTest, Operation
from .values import attributes_of, contents, is_a, is_same_picture, special_methods

OF_CAPTURE = object()  # a function that the capture put there for a while: the guard reads its value later


# -- groups ------------------------------------------------------------------------
class DictGroup(Group):
    """The keys of one dict."""

    shared = 2

    def native(self, features: Features) -> NativeTest | None:
        expected: dict[Any, Any] = {}
        sizes: list[int] = []
        for guard in self.guards:
            source, value = guard.source, guard.value
            if isinstance(source, Contents):
                return Operation.PICTURE, self.owner, value
            if isinstance(source, Size):
                sizes = [value]
            elif isinstance(source, Contains):
                expected.setdefault(source.key, PRESENT if value else MISSING)
            else:
                expected[source.key] = value
        entries = (part for entry in expected.items() for part in entry)
        return Operation.ENTRIES, self.owner, (*entries, *sizes)


class ClassGroup(Group):
    """The entries of one class."""

    shared = 2

    def native(self, features: Features) -> NativeTest | None:
        return (Operation.CLASS, self.owner, None) if features.class_versions else None


class ObjectGroup(Group):
    """The class and the dict of attributes of one object."""

    shared = 2

    def native(self, features: Features) -> NativeTest | None:
        values = {guard.source: guard.value for guard in self.guards}
        if len(self.guards) == 1 and TYPE in values:
            return Operation.TYPE, self.owner, values[TYPE]
        if not features.objects:
            return None
        return Operation.OBJECT, self.owner, (values.get(TYPE, MISSING), values.get(ATTRIBUTES, MISSING))


class LayoutGroup(Group):
    """The layouts of all tensors of few dimensions."""

    is_tested_at_once, shared = True, 1

    def check(self) -> Callable[[], bool]:
        tensors = [*{id(guard.owner): guard.owner for guard in self.guards}.values()]
        check, addresses = layout_check(tensors), [*map(torch.Tensor.data_ptr, tensors)]
        return lambda: check(*tensors) and [*map(torch.Tensor.data_ptr, tensors)] == addresses

    def native(self, features: Features) -> NativeTest | None:
        if features.layouts is None:
            return None
        tensors = tuple(guard.owner for guard in self.guards)
        return Operation.LAYOUTS, tensors, (torch.Tensor.requires_grad, *features.layouts)


class StateGroup(Group):
    """The answers of torch that torch's own test of its state compares."""

    is_tested_at_once, shared = True, 1

    def check(self) -> Callable[[], bool]:
        guard_class = getattr(guards_of_torch, "GlobalStateGuard", None)
        if guard_class is None:  # this torch has no such test
            return self.holds
        check: Callable[[], bool] = guard_class().check
        return check if self.holds() else lambda: False

    def native(self, features: Features) -> NativeTest | None:
        return Operation.ANSWER, self.check(), ((), True)


# -- dicts and other containers ------------------------------------------------------
class Item(Writable[dict[Any, Any]]):
    """A key of a dict."""

    group_class = DictGroup
    python = "get({owner}, {key}, MISSING) is {value}"

    def read(self, owner: dict[Any, Any]) -> Any:
        return dict.get(owner, self.key, MISSING)


class Mode(Item):
    """train() or eval() of a module whose first mode the graph keeps."""

    policy = Policy.NOTICE


class Contains(Source[dict[Any, Any]]):
    """Whether a dict has a key."""

    group_class = DictGroup
    python = "({key} in {owner}) is {value}"

    def read(self, owner: dict[Any, Any]) -> Any:
        return dict.__contains__(owner, self.key)


class Size(Source[dict[Any, Any]]):
    """How many keys a dict has."""

    group_class = DictGroup
    is_same = staticmethod(operator.eq)
    python = "len({owner}) == {value}"

    def read(self, owner: dict[Any, Any]) -> Any:
        return dict.__len__(owner)


class Keys(Source[dict[Any, Any]]):
    """The keys of a dict, in order."""

    is_same = staticmethod(is_same_picture)

    def read(self, owner: dict[Any, Any]) -> Any:
        return contents(owner)[: dict.__len__(owner)]


class Contents(Source[Any]):
    """All elements of a container, in order."""

    is_same = staticmethod(is_same_picture)
    python = "same(contents({owner}), {value})"

    def read(self, owner: object) -> Any:
        return contents(owner)

    def label(self, owner: str) -> str:
        return owner

    def native(self, owner: object, value: object, features: Features) -> NativeTest | None:
        return (Operation.LIST, owner, value) if type(owner) is list else None

    def group(self, owner: Any, value: Any) -> type[Group]:
        """The order of an OrderedDict is no part of the dict in it."""
        is_ordered = is_a(owner, collections.OrderedDict) and len(value) > 2
        return DictGroup if is_a(owner, dict) and not is_ordered else Group


class Element(Writable[Any]):
    """An index of a list or deque."""

    python = "{owner}[{key}] is {value}"

    def read(self, owner: Any) -> Any:
        return owner[self.key]

    def native(self, owner: object, value: object, features: Features) -> NativeTest | None:
        return (Operation.ELEMENT, owner, (self.key, value)) if type(owner) is list else None


# -- objects, classes and functions --------------------------------------------------
class Cell(Writable[types.CellType]):
    """A variable of a closure."""

    python = "{owner}.cell_contents is {value}"

    def read(self, owner: types.CellType) -> Any:
        return owner.cell_contents

    def write(self, owner: types.CellType, value: object) -> None:
        owner.cell_contents = value

    def native(self, owner: types.CellType, value: object, features: Features) -> NativeTest | None:
        return Operation.CELL, owner, value


class Attribute(Writable[object]):
    """What getattr() returns: slots, facts of functions, thread-locals."""

    def read(self, owner: object) -> Any:
        if isinstance(owner, threading.local):
            return getattr(owner, self.key, MISSING)
        return object.__getattribute__(owner, self.key)

    def write(self, owner: object, value: object) -> None:
        object.__setattr__(owner, self.key, value)

    def native(self, owner: object, value: object, features: Features) -> NativeTest | None:
        """The compiled loop runs no Python: for a function, a plain class, or an object with slots."""
        readers: tuple[Any, ...] = object.__getattribute__, types.FunctionType.__getattribute__
        is_plain = type(owner) is type or type(owner).__getattribute__ in readers
        return (Operation.ATTRIBUTE, owner, (self.key, value)) if is_plain else None


class Flag(Source[tuple[Any, ...]]):
    """An attribute that has the same value in each object of a tuple."""

    def read(self, owner: tuple[Any, ...]) -> Any:
        values = [getattr(value, self.key) for value in owner]
        return values[0] if all(value is values[0] for value in values) else MISSING

    def native(self, owner: tuple[Any, ...], value: object, features: Features) -> NativeTest | None:
        return Operation.FLAGS, owner, (inspect.getattr_static(type(owner[0]), self.key), value)


class Type(Source[object]):
    """The class of an object."""

    group_class = ObjectGroup
    python = "{owner}.__class__ is {value}"

    def read(self, owner: object) -> Any:
        return type(owner)


class Attributes(Source[object]):
    """The dict of the attributes of an object."""

    group_class = ObjectGroup

    def read(self, owner: object) -> Any:
        return attributes_of(owner)


class ClassAttribute(Source[type]):
    """An entry of the class itself, not of its bases."""

    group_class = ClassGroup

    def read(self, owner: type) -> Any:
        return owner.__mro__ if self.key == "__mro__" else owner.__dict__.get(self.key, MISSING)


class SpecialMethods(Source[type]):
    """The methods of a class that operators and built-in functions call."""

    group_class = ClassGroup
    is_same = staticmethod(is_same_picture)

    def read(self, owner: type) -> Any:
        return special_methods(owner)


class Function(Source[types.FunctionType]):
    """Code, defaults and keyword defaults."""

    is_same = staticmethod(is_same_picture)

    def read(self, owner: types.FunctionType) -> Any:
        return owner.__code__, owner.__defaults__, owner.__kwdefaults__

    def native(self, owner: types.FunctionType, value: Any, features: Features) -> NativeTest | None:
        parts = tuple(MISSING if part is None else part for part in value)
        return (Operation.FUNCTION, owner, parts) if features.functions else None


# -- tensors, settings and other sources ---------------------------------------------
class Layout(Source[torch.Tensor]):
    """Shape, strides, dtype and device of a tensor."""

    is_same = staticmethod(operator.eq)

    def read(self, owner: torch.Tensor) -> Any:
        return tensor_meta(owner)

    def group(self, owner: torch.Tensor, value: object) -> type[Group]:
        return LayoutGroup if is_compared_with_others(owner) else Group


class Answer(Source[Any]):
    """What the owner, or a method of it, returns. The key is (name of the method or None, arguments)."""

    def read(self, owner: Any) -> Any:
        method, arguments = self.key
        try:
            answer = (owner if method is None else getattr(owner, method))(*arguments)
        except Exception:  # whatever the function raises, it gives no answer now
            return MISSING
        if type(answer) is dict:
            return tuple(answer.items())
        return tuple(answer) if type(answer) is list else answer

    @staticmethod
    def is_same(old: object, new: object) -> bool:
        return new is old or type(new) is type(old) is str and new == old

    def native(self, owner: object, value: object, features: Features) -> NativeTest | None:
        method, arguments = self.key
        is_native = method is None and value is not MISSING
        return (Operation.ANSWER, owner, (arguments, value)) if is_native else None


class State(Answer):
    """An answer of torch that torch's GlobalStateGuard compares, too."""

    group_class = StateGroup


class Context(Source["ContextVar[Any]"]):
    """A context variable."""

    def read(self, owner: ContextVar[Any]) -> Any:
        return owner.get(MISSING)


class Alive(Source["weakref.ref[Any]"]):
    """Whether the object of a weak reference is still there."""

    def read(self, owner: weakref.ref[Any]) -> Any:
        return owner() is not None


class Weak(Source["weakref.ref[Any]"]):
    """The source `key` of the object of a weak reference."""

    def read(self, owner: weakref.ref[Any]) -> Any:
        target = weakref.ref.__call__(owner)
        if target is None:
            raise KeyError("the object of a weak reference is gone")
        return self.key.read(target)


SIZE, KEYS, CONTENTS, CELL = Size(), Keys(), Contents(), Cell()
TYPE, ATTRIBUTES, SPECIAL_METHODS, FUNCTION = Type(), Attributes(), SpecialMethods(), Function()
LAYOUT, CONTEXT, ALIVE = Layout(), Context(), Alive()


def hold_weakly(guards: Iterable[Guard], references: Mapping[int, weakref.ref[Any]]) -> None:
    """Let the guards of the objects of weak references hold the references.

    `references` is {id(object): a weak reference to it}.
    """
    for guard in guards:
        reference = references.get(id(guard.owner))
        if reference is not None and isinstance(guard.source, (Type, Attributes, Attribute)):
            guard.owner, guard.source = reference, Weak(guard.source)
