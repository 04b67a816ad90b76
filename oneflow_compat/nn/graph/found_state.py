"""The modules and trained tensors that a function refers to, by variables, defaults or self."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

_MOST_FUNCTIONS = 64  # a limit of the functions that are searched below one function


def found_modules(function: Callable[..., Any]) -> dict[str, torch.nn.Module]:
    """Return {name: module} of the modules that the function refers to."""
    return _named(function, lambda value: isinstance(value, torch.nn.Module))


def found_tensors(function: Callable[..., Any]) -> dict[str, torch.Tensor]:
    """Return {name: tensor} of the tensors that may get a gradient, and that the function refers to."""
    is_trained = lambda value: isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf
    return _named(function, is_trained)


def _named(function: Callable[..., Any], is_wanted: Callable[[Any], bool]) -> dict[str, Any]:
    by_name: dict[str, Any] = {}
    seen: set[int] = set()
    for name, value in _values(function):
        if is_wanted(value) and id(value) not in seen:
            while name in by_name:
                name += "_"
            by_name[name] = value
            seen.add(id(value))
    return by_name


def _values(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of what the function and the functions that it calls refer to."""
    functions, seen = [function], {id(function)}
    while functions and len(seen) < _MOST_FUNCTIONS:
        for name, value in _of_function(functions.pop(0)):
            yield from _with_elements(name, value)
            if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
                if id(value) not in seen:
                    seen.add(id(value))
                    functions.append(value)


def _of_function(function: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(function, functools.partial):
        yield from ((f"arg{i}", value) for i, value in enumerate(function.args))
        yield from function.keywords.items()
        yield from _of_function(function.func)
    elif isinstance(function, types.MethodType):
        yield from vars(function.__self__).items() if hasattr(function.__self__, "__dict__") else ()
        yield "self", function.__self__
        yield from _of_function(function.__func__)
    elif isinstance(function, types.FunctionType):
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                value = cell.cell_contents
            except ValueError:  # the variable has no value yet
                continue
            yield name, value
        for name in _names(code):
            if name in function.__globals__:
                yield name, function.__globals__[name]
        yield from zip(code.co_varnames, function.__defaults__ or ())
        yield from (function.__kwdefaults__ or {}).items()
    elif type(vars(type(function)).get("__call__")) is types.FunctionType:
        yield from _of_function(types.MethodType(vars(type(function))["__call__"], function))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _with_elements(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield name, value
    if type(value) in (list, tuple):
        yield from ((f"{name}_{i}", element) for i, element in enumerate(value))
    elif type(value) is dict:
        yield from ((f"{name}_{key}", element) for key, element in value.items())
