"""Additions to torch's classes: the rows of `_tables/tensor.py` and `module.py`."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from ._import_hook import ROOT, TableError, import_target
from ._method import Method
from ._tables.module import CONTEXT, MODULE
from ._tables.tensor import TENSOR

_MISSING = object()


def add_attributes(cls: type, rows: dict[str, tuple[str, str, str]]) -> None:
    """Put the rows {name: (kind, "module:function", why)} on torch's class.

    kind "method", "builtin" and "property" refuse a name that torch has; "replace" wraps a method of torch's
    (the function gets the original once, and returns the `Method` that lies on the class).
    A "builtin" is a method that `inspect` takes for one written in C.
    """
    for name, (row_type, target, _why) in rows.items():
        there = getattr(cls, name, _MISSING)
        if row_type == "replace":
            if there is _MISSING:
                raise TableError(f"{cls.__name__}.{name} cannot be replaced: torch has no such attribute")
            if not isinstance(vars(cls).get(name), Method) and not hasattr(there, "__oneflow_original__"):
                setattr(cls, name, import_target(target)(there))
            continue
        if there is not _MISSING and not _is_our_function(
            there.fget if isinstance(there, property) else there
        ):
            raise TableError(f"{cls.__name__}.{name} is torch's own; a row must not replace it silently")
        function = import_target(target)
        make = {"property": property, "builtin": BuiltinMethod}.get(row_type)
        setattr(cls, name, make(function) if make else _method(function, cls, name))


class BuiltinMethod:
    """A method without a module that is neither a function nor, bound to an object, a Python method.

    OneFlow's test harness repeats user functions in a graph; a method of this class it only calls.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self.__module__ = None  # type: ignore[assignment]
        self.__qualname__ = f"Tensor.{self.__name__}"
        self.__signature__ = inspect.signature(function)

    def __get__(self, tensor: Any, cls: type | None = None) -> Any:
        if tensor is None:
            return self
        bound: Any = functools.partial(self._function, tensor)
        bound.__name__, bound.__qualname__, bound.__doc__, bound.__module__ = (
            self.__name__,
            self.__qualname__,
            self.__doc__,
            None,
        )
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (torch.Tensor, self.__name__)


def _is_our_function(function: Any) -> bool:
    function = getattr(function, "_function", function)
    return getattr(function, "__globals__", {}).get("__name__", "").startswith(ROOT)


def _method(function: Callable[..., Any], cls: type, name: str) -> Callable[..., Any]:
    """A copy of `function` under the public name of the method: error messages and OneFlow's test harness
    print it.
    """
    method = types.FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    method.__kwdefaults__, method.__doc__, method.__annotations__ = (
        function.__kwdefaults__,
        function.__doc__,
        function.__annotations__,
    )
    method.__qualname__, method.__module__ = f"{cls.__name__}.{name}", ROOT
    return method


def add_tensor_and_module_attributes() -> None:
    """Apply the tables of additions to torch's tensors, modules and autograd contexts."""
    add_attributes(torch.Tensor, TENSOR)
    add_attributes(torch.nn.Module, MODULE)
    add_attributes(torch.autograd.function.FunctionCtx, CONTEXT)
