"""The attributes of modules of torch.jit.script, which lie in C++ and are copied at each read."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree

# A graph keeps the mode of its first call, and torch sets the other one when it makes a module.
_NOT_OF_USER = frozenset(["training", "_is_full_backward_hook"])
_Path = tuple[str, ...]
_names: weakref.WeakKeyDictionary[object, tuple[tuple[_Path, str], ...]] = weakref.WeakKeyDictionary()


def script_attributes(owner: Any) -> tuple[Any, ...]:
    """Return the attributes of a script module, or of the module of a script method, and of its submodules.

    They are one text with all values that are no tensors, and the tensors.
    """
    module = owner.owner if isinstance(owner, torch._C.ScriptMethod) else owner
    names = _names.get(owner)
    if names is None:
        names = _names[owner] = tuple(_attributes_of(_type_of(module)))
    leaves, structure = pytree.tree_flatten([_value(module, path, name) for path, name in names])
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    values = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    return (f"{values!r} {structure!r}", *tensors)


def _type_of(module: torch._C.ScriptModule) -> Any:
    return torch._C.ConcreteModuleType.from_jit_type(module._type())


def _attributes_of(module: Any, path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """Yield the path of the submodule and the name of each attribute but parameters, which a graph names."""
    for name, (_, is_parameter) in module.get_attributes().items():
        if not is_parameter and name not in _NOT_OF_USER:
            yield path, name
    for name, submodule in module.get_modules():
        yield from _attributes_of(submodule, (*path, name))


def _value(module: Any, path: _Path, name: str) -> Any:
    value = functools.reduce(lambda owner, key: owner.getattr(key), path, module).getattr(name)
    return repr(type(value)) if isinstance(value, torch._C.ScriptObject) else value
