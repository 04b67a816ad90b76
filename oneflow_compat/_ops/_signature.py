"""Helpers for functions under OneFlow's argument names that hand most calls straight to torch."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any, TypeVar

from .._bind import rename
from .._method import is_traced

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = TypeVar("Function", bound=Callable[..., Any])


def parse(source: str) -> inspect.Signature:
    """Parse a signature such as "(input, dim=None, **torch_keywords)". Defaults may use inf, True, False and
    None.
    """
    body = source.strip()
    return inspect.signature(
        eval(
            f"lambda {body[1:-1]}: None",
            {"__builtins__": {}, "inf": float("inf"), "True": True, "False": False, "None": None},
        )
    )


def documented(
    source: str, name: str | None = None, doc: str | None = None
) -> Callable[[Function], Function]:
    """Decorator: show the signature `text` for a function whose body takes *args, **kwargs."""
    signature = parse(source)

    def decorate(function: Function) -> Function:
        function.__signature__ = signature
        if name:
            function.__name__ = function.__qualname__ = name
        function.__module__ = "oneflow"
        if doc:
            function.__doc__ = doc
        return function

    return decorate


def spelled(pairs: str) -> Callable[[Function], Function]:
    """Decorator: also accept torch's keyword names, "torch=ours" pairs: @spelled("input=x axis=dim")."""
    mapping = dict(item.split("=") for item in pairs.split())
    theirs = frozenset(mapping)

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs and not theirs.isdisjoint(kwargs):
                kwargs = rename(function.__name__, kwargs, mapping)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


def refused_by_class(error: BaseException) -> bool:
    """Whether a class with __torch_function__ reported that it does not implement the torch function."""
    return type(error) is TypeError and "__torch_function__" in str(error)


def ask_class(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call __torch_function__ of the arguments' classes with our function `name`, because such classes look
    functions up in a dict whose keys are what a program calls torch.NAME.
    """
    import torch

    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    concerned = [a for a in leaves if hasattr(type(a), "__torch_function__") and type(a) is not torch.Tensor]
    return torch.overrides.handle_torch_function(
        getattr(sys.modules["oneflow"], name), concerned, *args, **kwargs
    )


def or_else(
    target: Callable[..., Any], name: str, signature: str, doc: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator for the slow path `function(error, *args, **kwargs)` of `target`.

    The result calls torch's `target` first. If `target` raises, the decorated function runs; it returns a
    result, or `REFUSED` to raise torch's own error.
    """
    shown = parse(signature)

    def decorate(slow: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return target(*args, **kwargs)
            except (TypeError, RuntimeError, NotImplementedError) as error:
                if refused_by_class(error):
                    return ask_class(name, args, kwargs)
                if (
                    not isinstance(error, TypeError) and is_traced()
                ):  # the next operator would end the process
                    raise
                out = slow(error, *args, **kwargs)
                if out is REFUSED:
                    raise
                return out

        call.__name__ = call.__qualname__ = name
        call.__module__ = "oneflow"
        call.__doc__ = doc
        call.__signature__ = shown
        return call

    return decorate


REFUSED = types.SimpleNamespace(__name__="REFUSED")


# ----------- Arguments of functions that take OneFlow's or torch's positional order, told apart by a type


def bind(
    function: str, slots: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any], **renamed: str
) -> dict[str, Any]:
    """Return the arguments of a call as {name: value}. `slots` names the positions; keywords may use either
    spelling (`renamed`: ours=theirs).
    """
    if len(args) > len(slots):
        raise TypeError(
            f"{function}() takes at most {len(slots)} positional arguments ({', '.join(slots)}), found"
            f" {len(args)}"
        )
    arguments = dict(zip(slots, args))
    for name, value in kwargs.items():
        name = renamed.get(name, name)
        if name in arguments:
            raise TypeError(f"{function}() got the argument {name!r} twice")
        arguments[name] = value
    if slots[0] not in arguments:
        raise TypeError(f"{function}() misses its first argument {slots[0]!r}")
    return arguments


def need_tensors(function: str, **arguments: Any) -> None:
    """Raise TypeError, as functions written in C do, if an argument is not a tensor. A torch.fx proxy counts
    as a tensor.
    """
    for name, value in arguments.items():
        if not hasattr(value, "dim"):
            raise TypeError(f"{function}(): argument {name!r} must be a tensor, found {type(value).__name__}")
