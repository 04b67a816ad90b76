"""Sources, which hold values, and guards, which assume that a source still holds its value.

The word is torch's (`torch._guards.Source`): an attribute of an object, a key of a dict, an index of a list.
"""

from __future__ import annotations

import array
import collections
import contextvars
import decimal
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...._global.marks import OfSeveralRanks
from ...program.python_values import (
    MISSING,
    PLAIN_TYPES,
    is_immutable_in_c,
    is_python_class,
    same_value,
    tensor_meta,
)
from .script_modules import SCRIPT_CLASSES, script_attributes

if TYPE_CHECKING:
    from ..instrumentation.instrument import Site


# How a source is read. The owner of a guard is the object that has the source.
ITEM = "item"  # a key of a dict
CONTAINS = "contains"  # whether a dict has a key
SIZE = "size"  # how many keys a dict has
KEYS = "keys"  # the keys of a dict, in order
ELEMENT = "element"  # an index of a list or deque
CELL = "cell"  # a variable of a closure
ATTRIBUTE = "attribute"  # what getattr() returns: slots, facts of functions, thread-locals
CLASS_ATTRIBUTE = "class attribute"  # an entry of the class itself, not of its bases
TYPE = "type"  # the class of an object
ATTRIBUTES = "attributes"  # the dict of the attributes of an object
FUNCTION = "function"  # code, defaults and keyword defaults
CONTENTS = "contents"  # all elements of a container, in order
CONTEXT = "context variable"
FLAG = "flag"  # an attribute that has the same value in each object of a tuple
SPECIAL_METHODS = "special methods"  # of a class: those that operators and built-in functions call
ANSWER = "answer"  # what a function, or a method of the owner, returns for some arguments; see answers.py
STATE = "state"  # an answer of torch that torch's GlobalStateGuard compares, too
LAYOUT = "layout"  # shape, strides, dtype and device of a tensor
MODE = "mode"  # train() or eval() of a module whose first mode the graph keeps
COUNTER = "counter"  # the class of a number that build() only counts; see counters.py
WEAK = "weak"  # a source of the object of a weak reference
ALIVE = "alive"  # whether the object of a weak reference is still there

OF_CAPTURE = object()  # a function that the capture put there for a while: the guard reads its value later

# Classes whose objects hold nothing that could change, so that reads of them have no guard.
FREE = frozenset(
    [
        int, float, bool, str, bytes, complex, type(None), type(Ellipsis), type(NotImplemented), slice, range,
        torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format, types.CodeType,
        types.CellType, types.TracebackType, types.FrameType, types.FunctionType, types.BuiltinFunctionType,
        types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType,
    ]
)  # fmt: skip
# Views of dicts. Most are made, read and dropped by one statement, which reads the dict, too.
VIEWS = frozenset([type({}.keys()), type({}.values()), type({}.items())])
FREE_OF_ATTRIBUTES = FREE - {types.FunctionType}
# The same, with their subclasses.
FREE_BASES = (
    torch.Tensor,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
    torch._C._FunctionBase,
)


def is_a(value: object, classes: Any) -> bool:
    """Whether the value is an instance, by its type alone: isinstance() may run code of the user's object."""
    return issubclass(type(value), classes)


class Guard:
    """A source, and the value that the program assumes it to hold.

    The owner, the access (how the source is read) and the key make the source.
    """

    __slots__ = ("access", "key", "name", "owner", "site", "value")

    def __init__(
        self, access: str, owner: Any, key: Any, value: Any, label: str | None, site: Site | None
    ) -> None:
        self.access, self.owner, self.key, self.value = access, owner, key, value
        self.name, self.site = label, site

    @property
    def label(self) -> str:
        """The name of the source: `Linear.bias`, `TABLE['k']`."""
        if self.name is not None:
            return self.name
        if self.site is not None and self.site.is_user:
            return self.site.expression
        owner = type(self.owner).__name__
        return owner if self.access == CONTENTS else f"{owner}[{self.key!r:.40}]"

    def current(self) -> Any:
        """Return the value that the source holds now, or MISSING."""
        return self.read(self.owner)

    def read(self, owner: Any) -> Any:
        """Return the value of the same source of another object."""
        try:
            return _READERS[self.access](owner, self.key)
        except (KeyError, IndexError, AttributeError, ValueError, TypeError):
            return MISSING

    @property
    def code_location(self) -> Any:
        """(file, line, function) of the first read, or None."""
        return self.site.code_location if self.site is not None else None


def contents(container: Any) -> Any:
    """Return a shallow picture of a container as a tuple, or MISSING for an object that is none."""
    for cls in type(container).__mro__:
        picture = _PICTURES.get(cls)
        if picture is not None:
            return picture(container)
    return MISSING


def _attribute(owner: Any, name: str) -> Any:
    if isinstance(owner, threading.local):
        return getattr(owner, name, MISSING)
    return object.__getattribute__(owner, name)


_READERS: dict[Any, Callable[[Any, Any], Any]] = {
    ITEM: lambda owner, key: dict.get(owner, key, MISSING),
    MODE: lambda owner, key: dict.get(owner, key, MISSING),
    CONTAINS: lambda owner, key: dict.__contains__(owner, key),
    SIZE: lambda owner, key: dict.__len__(owner),
    KEYS: lambda owner, key: contents(owner)[: dict.__len__(owner)],
    ELEMENT: lambda owner, key: owner[key],
    CELL: lambda owner, key: owner.cell_contents,
    ATTRIBUTE: _attribute,
    CLASS_ATTRIBUTE: lambda owner, key: (
        owner.__mro__ if key == "__mro__" else owner.__dict__.get(key, MISSING)
    ),
    TYPE: lambda owner, key: type(owner),
    ATTRIBUTES: lambda owner, key: attributes_of(owner),
    FUNCTION: lambda owner, key: (owner.__code__, owner.__defaults__, owner.__kwdefaults__),
    CONTENTS: lambda owner, key: contents(owner),
    CONTEXT: lambda owner, key: owner.get(MISSING),
    FLAG: lambda owner, key: _common_value(owner, key),
    SPECIAL_METHODS: lambda owner, key: special_methods(owner),
    ANSWER: lambda owner, key: _answer(owner, key),
    STATE: lambda owner, key: _answer(owner, key),
    ALIVE: lambda owner, key: owner() is not None,
    LAYOUT: lambda owner, key: tensor_meta(owner),
    WEAK: lambda owner, source: value_of_source(source[0], _target_of(owner), source[1]),
    COUNTER: lambda owner, counted: type(value_of_source(counted.access, owner, counted.key)),
}


def value_of_source(access: str, owner: Any, key: Any) -> Any:
    """Return the value that a source holds. Raise if there is no such source."""
    return _READERS[access](owner, key)


def _target_of(reference: weakref.ref[Any]) -> Any:
    target = weakref.ref.__call__(reference)
    if target is None:
        raise KeyError("the object of a weak reference is gone")
    return target


def hold_weakly(guards: Iterable[Guard], references: Mapping[int, weakref.ref[Any]]) -> None:
    """Let the guards of the objects of weak references hold the references.

    `references` is {id(object): a weak reference to it}.
    """
    for guard in guards:
        reference = references.get(id(guard.owner))
        if reference is not None and guard.access in (TYPE, ATTRIBUTES, ATTRIBUTE):
            guard.owner, guard.access, guard.key = reference, WEAK, (guard.access, guard.key)


def _answer(owner: Any, key: tuple[Any, ...]) -> Any:
    method, arguments = key
    try:
        answer = (owner if method is None else getattr(owner, method))(*arguments)
    except Exception:  # whatever the function raises, it gives no answer now
        return MISSING
    if type(answer) is dict:
        return tuple(answer.items())
    return tuple(answer) if type(answer) is list else answer


def _common_value(objects: Any, name: str) -> Any:
    values = [getattr(value, name) for value in objects]
    return values[0] if all(value is values[0] for value in values) else MISSING


def _dict_contents(value: Any) -> tuple[Any, ...]:
    return (*dict.keys(value), *dict.values(value))


WEAK_CONTAINERS = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
_IN_ORDER = collections.OrderedDict.__iter__  # move_to_end() changes nothing else
_PICTURES: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    list: lambda value: tuple(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    collections.deque: lambda value: tuple(collections.deque.__iter__(value)),
    dict: _dict_contents,
    collections.OrderedDict: lambda value: (*_IN_ORDER(value), *map(value.get, _IN_ORDER(value))),
    types.MappingProxyType: lambda value: (*value.keys(), *value.values()),
    **dict.fromkeys(VIEWS, lambda value: (*value.mapping.keys(), *value.mapping.values())),
    set: lambda value: (frozenset(value),),
    frozenset: lambda value: (value,),
    np.ndarray: lambda value: (value.tobytes(), f"{value.dtype.str}{value.shape}"),
    bytearray: lambda value: (bytes(value),),
    memoryview: lambda value: (value.tobytes(), f"{value.format}{value.shape}"),
    array.array: lambda value: (value.tobytes(), value.typecode),
    functools.partial: lambda value: (value.func, *value.args, *value.keywords, *value.keywords.values()),
    weakref.WeakKeyDictionary: lambda value: _dict_contents(value.data),
    weakref.WeakValueDictionary: lambda value: _dict_contents(value.data),
    weakref.WeakSet: lambda value: (frozenset(value.data),),
    types.MethodType: lambda value: (value.__func__, value.__self__),
    contextvars.Context: lambda value: (*value.keys(), *value.values()),
    decimal.Context: lambda value: arithmetic_of(value),
    **dict.fromkeys(SCRIPT_CLASSES, script_attributes),
}


def arithmetic_of(context: decimal.Context) -> tuple[Any, ...]:
    """Return what decides the results of decimal arithmetic."""
    traps = tuple(signal.__name__ for signal, is_trapped in context.traps.items() if is_trapped)
    limits = context.Emin, context.Emax, context.capitals, context.clamp
    return context.prec, context.rounding, *limits, " ".join(traps)


def special_methods(cls: type) -> tuple[Any, ...]:
    """Return the names of the special methods that a class defines, and the methods."""
    methods = {
        name: value
        for name, value in vars(cls).items()
        if name[:2] == "__" and (callable(value) or isinstance(value, (classmethod, staticmethod)))
    }
    return (*methods, *methods.values())


def is_fake(tensor: Any) -> bool:
    """Whether this is a tensor of the capture: a fake one, or a global one whose shard is fake."""
    shard = tensor._local_tensor if is_a(tensor, OfSeveralRanks) else tensor
    return type(shard).__name__ == "FakeTensor"


def is_input(tensor: torch.Tensor) -> bool:
    """Whether a symbolic tensor stands for an argument of the program."""
    return is_fake(tensor) and getattr(getattr(tensor, "_of_node", None), "op", None) == "placeholder"


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor is there before the call, and no result of build()."""
    return is_input(tensor) or not is_fake(tensor)


def is_plain(value: Any) -> bool:
    """Whether two values of this class are compared by equality."""
    if isinstance(value, (*PLAIN_TYPES, frozenset)):
        return isinstance(value, Enum) or not is_python_class(type(value))
    return is_immutable_in_c(value)


def is_same_plain(a: Any, b: Any) -> bool:
    """Whether two plain values are equal: 1 is not 1.0 and not True, 0.0 is not -0.0."""
    if type(a) is frozenset or type(b) is frozenset:
        return type(a) is type(b) and {_exact(v) for v in a} == {_exact(v) for v in b}
    return same_value(a, b) or type(a) is type(b) and is_immutable_in_c(a) and a == b


def is_same_picture(a: Any, b: Any) -> bool:
    """Whether two pictures of containers hold the same objects, or the same bytes."""
    if type(a) is not tuple or type(b) is not tuple or len(a) != len(b):
        return a is b
    return all(x is y or type(x) in _OF_PICTURES and is_same_plain(x, y) for x, y in zip(a, b))


_OF_PICTURES = (bytes, str, frozenset)  # what a picture of an array or a set makes anew


def _exact(value: Any) -> tuple[Any, ...]:
    return (type(value), repr(value) if isinstance(value, (float, complex)) else value)


_BY_IDENTITY = (
    torch.nn.Module,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.CodeType,
    types.CellType,
)


def can_be_replaced(value: Any) -> bool:
    """Whether an object of the same class may replace this one, if its guarded sources are equal."""
    if isinstance(value, _BY_IDENTITY):
        return False
    return contents(value) is not MISSING or all(map(is_python_class, type(value).__mro__[:-1]))


def attributes_of(instance: Any) -> Any:
    """Return the attribute dict of an object, or None. That of a `threading.local` is another one."""
    if is_a(instance, threading.local):
        return None
    try:
        attributes = object.__getattribute__(instance, "__dict__")
    except (AttributeError, TypeError):
        return None
    return attributes if isinstance(attributes, dict) else None
