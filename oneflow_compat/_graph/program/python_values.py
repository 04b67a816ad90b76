"""Python values that a capture reads: which are compared by value, and containers to read them again."""

import decimal
import enum
import types
from typing import Any, TypeGuard

import numpy as np
import torch

NUMBERS = (int, float, bool, str, bytes, complex, type(None))
PLAIN_TYPES = (
    *NUMBERS,
    np.generic,
    torch.dtype,
    torch.device,
    torch.Size,
    torch.layout,
    torch.memory_format,
    enum.Enum,
    slice,
    range,
)
_CONSTANTS = (*PLAIN_TYPES, type(Ellipsis), np.dtype)
_METHODS = (types.FunctionType, classmethod, staticmethod, property)
_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8  # bits of CPython's type flags
_MANAGED_DICT, _MANAGED_WEAK_REFERENCES = 1 << 4, 1 << 3  # since Python 3.11 and 3.12
_POINTER_BYTES = tuple.__itemsize__
MISSING: Any = object()  # stands for a value of any type
# shape, stride, dtype, device, requires_grad, layout and class of a tensor
Metadata = tuple[torch.Size, tuple[int, ...] | None, torch.dtype, torch.device, bool, torch.layout, type]


class NumberOfCapture:
    """Base of the numbers that stand for Python floats while a program is captured. No call meets one."""

    __slots__ = ()


def same_value(a: Any, b: Any) -> bool:
    """Whether two values are equal as an argument: 1 is not 1.0 and not True, 0.0 is not -0.0."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        base: Any = list if isinstance(a, list) else tuple  # a subclass may have other elements, or no length
        return base.__len__(a) == base.__len__(b) and all(map(same_value, base.__iter__(a), base.__iter__(b)))
    if isinstance(a, dict):
        return _same_entries(a, b)
    if is_record(type(a)):
        return _same_entries(vars(a), vars(b))
    if isinstance(a, (set, frozenset)):
        return bool(a == b)
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, (float, complex, np.inexact)):
        return repr(a) == repr(b)
    return isinstance(a, PLAIN_TYPES) and a == b


def _same_entries(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    return a.keys() == b.keys() and all(same_value(v, b[k]) for k, v in a.items())


def is_dict(value: object) -> TypeGuard[dict[Any, Any]]:
    """Whether the value is a dict, or of a subclass with the item lookup of dict."""
    return isinstance(value, dict) and type(value).__getitem__ is dict.__getitem__


def is_record(cls: type) -> bool:
    """Whether this is a Python class with attributes and no methods: argparse.Namespace, `class Config`."""
    of_python = type(cls) is type and cls.__flags__ & _HEAP_TYPE and not cls.__flags__ & _IMMUTABLE
    if not of_python or not cls.__dictoffset__ or issubclass(cls, (dict, list, tuple, *NUMBERS[:-1])):
        return False
    return not any(
        isinstance(v, _METHODS) and not k.startswith("_")
        for c in cls.__mro__[:-1]
        for k, v in vars(c).items()
    )


def is_constant(value: object) -> bool:
    """Whether a value cannot change, so that each call may use it itself: a number, a text, a date."""
    return isinstance(value, _CONSTANTS) or is_immutable_in_c(value)


def is_immutable_in_c(value: object) -> bool:
    """Numbers, dates and patterns of the standard library: immutable, and written in C."""
    cls = type(value)
    is_known = cls.__module__ in ("decimal", "datetime", "re") and cls is not decimal.Context
    return is_known and not is_python_class(cls)


def is_python_class(cls: type) -> bool:
    """Whether a class statement made the class, so that attributes are all that its objects have.

    A class written in C has fields of its own: its objects are larger than their attributes need, which are
    slots, a dict and a list of weak references. The last two lie before the object if Python manages them.
    """
    base = cls.__base__
    if not cls.__flags__ & _HEAP_TYPE or base is None:
        return False
    fields = (cls.__basicsize__ - base.__basicsize__) // _POINTER_BYTES
    if not cls.__flags__ & _MANAGED_DICT:
        fields -= cls.__dictoffset__ != base.__dictoffset__
    if not cls.__flags__ & _MANAGED_WEAK_REFERENCES:
        fields -= cls.__weakrefoffset__ != base.__weakrefoffset__
    return fields <= 0 or fields <= sum(
        isinstance(value, types.MemberDescriptorType) for value in vars(cls).values()
    )


def tensor_meta(tensor: torch.Tensor) -> Metadata:
    """Return the metadata that a program assumes fixed for a tensor it reads."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return _metadata(tensor)
    with torch._C.DisableTorchFunctionSubclass():  # the __torch_function__ of a user's class is not asked
        return _metadata(tensor)


def _metadata(tensor: torch.Tensor) -> Metadata:
    stride = tensor.stride() if tensor.layout is torch.strided else None
    return (
        tensor.shape,
        stride,
        tensor.dtype,
        tensor.device,
        tensor.requires_grad,
        tensor.layout,
        type(tensor),
    )


def get_item(container: Any, key: Any) -> Any:
    try:
        return container[key]
    except (KeyError, IndexError, ValueError):
        return MISSING
