"""Functions that are rows: a torch function under the job-function API's argument names, plus `name=None`."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch

from ...._tables.legacy.orders import ORDERS
from .orders import takes_older_orders

_P = inspect.Parameter


def make(public: str, target: Callable[..., Any], spec: str) -> Callable[..., Any]:
    """`target` called by position with the arguments that `spec` lists: "x axis=None keepdims=False"."""
    parameters = []
    for item in spec.split():
        name, has_default, default = item.partition("=")
        parameters.append(
            _P(name, _P.POSITIONAL_OR_KEYWORD, default=ast.literal_eval(default) if has_default else _P.empty)
        )
    parameters.append(_P("name", _P.POSITIONAL_OR_KEYWORD, default=None))
    signature = inspect.Signature(parameters)

    def call(*args: Any, **kwargs: Any) -> torch.Tensor:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return target(*bound.args[:-1])

    call.__name__ = call.__qualname__ = public
    call.__signature__ = signature
    call.__doc__ = (
        f"`{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}` with the arguments"
        f" {', '.join(p.name for p in parameters)}."
    )
    return call


def target_of(path: str, package: str) -> Any:
    """The function at "torch.a.b" or "module:function" relative to `package`."""
    if ":" in path:
        module, name = path.split(":")
        return getattr(importlib.import_module(f"{package}.{module}"), name)
    parts = path.split(".")
    target = importlib.import_module(parts[0])
    for part in parts[1:]:
        target = getattr(target, part)
    return target


def lazy(module: str, rows: dict[str, Any], package: str) -> tuple[Callable[..., Any], ...]:
    """The `__getattr__` and `__dir__` of a public module whose functions are rows {name: (target, spec)}."""
    import sys

    def __getattr__(name: str) -> Any:
        row = rows.get(name)
        if row is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        function = make(name, target_of(row[0], package), row[1])
        path = f"{module.rpartition('.')[2]}.{name}"
        if path in ORDERS:
            function = takes_older_orders(path)(function)
        setattr(sys.modules[module], name, function)
        return function

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[module]), *rows})

    return __getattr__, __dir__
