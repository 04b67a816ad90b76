"""Methods of torch's classes that also take calls which torch refuses.

A `Method` lies on the class in place of torch's method. `torch.Tensor.view` is still torch's own object, so
tables of functions, pickles and torch.compile find what torch has. `tensor.view(...)` calls torch's method,
and the fallback if torch refuses the call.

csrc/method.cpp is the same class in C++. It costs less, and torch's warnings name the caller's line.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

REFUSALS = (TypeError, RuntimeError, ValueError)
_INTERFACE = 1  # kInterface of csrc/method.cpp


class _Method:
    """Call `original`; after a refusal, call `fallback(original, error, self, *args, **kwargs)`.

    The error is None if the original returned NotImplemented. If the fallback returns NotImplemented, the
    call ends as the original ended. With `always`, the fallback is called at once.
    """

    def __init__(
        self, original: Callable[..., Any], fallback: Callable[..., Any], always: bool = False
    ) -> None:
        self.__oneflow_original__ = original
        self._fallback, self._always = fallback, always

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        original = self.__oneflow_original__
        if self._always:
            return self._fallback(original, None, *args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except REFUSALS as error:
            result = self._fallback(original, error, *args, **kwargs)
            if result is NotImplemented:
                raise
            return result
        return self._fallback(original, None, *args, **kwargs) if result is NotImplemented else result

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self.__oneflow_original__ if instance is None else types.MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        """A Method equals its original: torch compares what it finds in the dict of a class."""
        return bool(self.__oneflow_original__ == getattr(other, "__oneflow_original__", other))

    def __hash__(self) -> int:
        return hash(self.__oneflow_original__)


_fast_method: Any = None
with contextlib.suppress(ImportError):  # no compiler
    _fast_method = importlib.import_module("._fast_method", __package__)  # csrc/method.cpp
Method: Any = _fast_method.Method if getattr(_fast_method, "INTERFACE", None) == _INTERFACE else _Method


def named_method(original: Callable[..., Any], fallback: Callable[..., Any], always: bool = False) -> Any:
    """Return a Method with the names and the documentation of `original`."""
    method = Method(original, _unless_traced(fallback), always)
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(method, name, getattr(original, name, None))
    return method


def _unless_traced(fallback: Callable[..., Any]) -> Callable[..., Any]:
    """Leave an operator that fails under torch.jit.trace to torch: its next operator would end the process.

    A TypeError is raised before the trace knows of the call.
    """

    @functools.wraps(fallback)
    def call(original: Callable[..., Any], error: Exception | None, *args: Any, **kwargs: Any) -> Any:
        if error is not None and not isinstance(error, TypeError) and is_traced():
            return NotImplemented
        return fallback(original, error, *args, **kwargs)

    return call


def is_traced() -> bool:
    """Whether torch.jit.trace runs. torch.jit.is_tracing() is False after an operator failed."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.jit._trace":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def plain_method(value: Any) -> Any:
    """Return torch's own method if `value` is a Method, else `value`."""
    return value.__oneflow_original__ if isinstance(value, Method) else value


def own_attribute(cls: type, name: str) -> Any:
    """Return what calls of an instance get under a name of a class, as a function of the instance.

    `getattr(cls, name)` gives torch's own method where the class holds a Method.
    """
    for base in cls.__mro__:
        value = vars(base).get(name)
        if value is not None:
            return value if isinstance(value, Method) else getattr(cls, name)
    return getattr(cls, name)
