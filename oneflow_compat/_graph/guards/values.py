"""Values as guards compare them: classes that need no guards, shallow pictures of containers, equality."""

from __future__ import annotations

import array
import collections
import contextvars
import decimal
import functools
import threading
import types
import weakref
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import torch

from ..._global.marks import OfSeveralRanks
from ..program.python_values import (
    MISSING,
    PLAIN_TYPES,
    is_immutable_in_c,
    is_python_class,
    same_value,
)
from .script_modules import SCRIPT_CLASSES, script_attributes

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


def contents(container: object) -> Any:
    """Return a shallow picture of a container as a tuple, or MISSING for an object that is none."""
    for cls in type(container).__mro__:
        picture = _PICTURES.get(cls)
        if picture is not None:
            return picture(container)
    return MISSING


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


def is_plain(value: object) -> bool:
    """Whether two values of this class are compared by equality."""
    if isinstance(value, (*PLAIN_TYPES, frozenset)):
        return isinstance(value, Enum) or not is_python_class(type(value))
    return is_immutable_in_c(value)


def is_same_plain(a: Any, b: Any) -> bool:
    """Whether two plain values are equal: 1 is not 1.0 and not True, 0.0 is not -0.0."""
    if type(a) is frozenset or type(b) is frozenset:
        return type(a) is type(b) and {_exact(v) for v in a} == {_exact(v) for v in b}
    return same_value(a, b) or type(a) is type(b) and is_immutable_in_c(a) and a == b


def is_same_picture(a: object, b: object) -> bool:
    """Whether two pictures of containers hold the same objects, or the same bytes."""
    if type(a) is not tuple or type(b) is not tuple or len(a) != len(b):
        return a is b
    return all(x is y or type(x) in _OF_PICTURES and is_same_plain(x, y) for x, y in zip(a, b))


_OF_PICTURES = (bytes, str, frozenset)  # what a picture of an array or a set makes anew


def _exact(value: object) -> tuple[Any, ...]:
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


def can_be_replaced(value: object) -> bool:
    """Whether an object of the same class may replace this one, if its guarded sources are equal."""
    if isinstance(value, _BY_IDENTITY):
        return False
    return contents(value) is not MISSING or all(map(is_python_class, type(value).__mro__[:-1]))


def attributes_of(instance: object) -> Any:
    """Return the attribute dict of an object, or None. That of a `threading.local` is another one."""
    if is_a(instance, threading.local):
        return None
    try:
        attributes = object.__getattribute__(instance, "__dict__")
    except (AttributeError, TypeError):
        return None
    return attributes if isinstance(attributes, dict) else None
