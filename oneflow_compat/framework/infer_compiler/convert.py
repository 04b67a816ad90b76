"""register(): which classes compile_from_torch replaces, and functions that replace objects by their type."""

from __future__ import annotations

import functools
import typing
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


__all__ = ["register", "torch2oflow"]

_classes: dict[type, type] = {}


def register(
    *,
    package_names: Sequence[str] | None = None,
    torch2oflow_class_map: Mapping[type, type] | None = None,
    torch2oflow_funcs: Iterable[Callable[[Any], Any]] | None = None,
) -> None:
    """Add to what `torch2oflow` replaces.

    torch2oflow_class_map: {class: class with the same attributes}; a module of the first becomes one of the
    second over the same parameters. torch2oflow_funcs: functions whose first parameter is annotated with the
    type they replace. package_names: packages OneFlow would import under its own torch; they run as they are.
    """
    if isinstance(package_names, str) or any(not isinstance(n, str) for n in package_names or ()):
        raise TypeError(f"register: package_names is a list of names, found {package_names!r}")
    for old, new in (torch2oflow_class_map or {}).items():
        if not (isinstance(old, type) and isinstance(new, type)):
            raise TypeError(
                f"register: torch2oflow_class_map maps classes to classes, found {old!r}: {new!r}"
            )
        _classes[old] = new
    for function in torch2oflow_funcs or ():
        hints = [v for k, v in typing.get_type_hints(function).items() if k != "return"]
        if not hints or not isinstance(hints[0], type):
            raise TypeError(
                f"register: the first parameter of {function.__name__}() needs a class as its annotation"
            )
        torch2oflow.register(hints[0], function)


@functools.singledispatch
def torch2oflow(mod: Any) -> Any:
    """`mod` itself, or its registered replacement; modules are looked through."""
    return mod


@torch2oflow.register
def _module(mod: torch.nn.Module) -> torch.nn.Module:
    children = {name: None if child is None else torch2oflow(child) for name, child in mod._modules.items()}
    cls = _classes.get(type(mod), type(mod))
    if cls is type(mod) and all(children[name] is child for name, child in mod._modules.items()):
        return mod
    converted: torch.nn.Module = cls.__new__(cls)  # type: ignore[call-overload]
    converted.__dict__.update(mod.__dict__)  # the same parameters and buffers
    converted.__dict__["_modules"] = type(mod._modules)(children)
    return converted
