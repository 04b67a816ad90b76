"""The attributes of modules of torch.jit.script, which lie in C++ and are copied at each read."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree


class _Names(NamedTuple):
    """The names of what a script module has: attributes, and submodules with their own names."""

    attributes: tuple[str, ...]
    submodules: tuple[tuple[str, _Names], ...]


# A graph keeps the mode of its first call, and torch sets the other one when it makes a module.
_NOT_OF_USER = frozenset(["training", "_is_full_backward_hook"])
_PLAIN = frozenset([int, float, bool, str, type(None)])
# torch.jit is deprecated, so a torch may come that has no script modules.
SCRIPT_CLASSES = tuple(
    getattr(torch._C, name) for name in ("ScriptModule", "ScriptMethod") if hasattr(torch._C, name)
)
_names: weakref.WeakKeyDictionary[object, _Names] = weakref.WeakKeyDictionary()


def script_attributes(owner: Any) -> tuple[Any, ...]:
    """Return the attributes of a script module, or of the module of a script method, and of its submodules.

    They are one text with all values that are no tensors, and the tensors.
    """
    method_class: Any = getattr(torch._C, "ScriptMethod", ())
    module = owner.owner if isinstance(owner, method_class) else owner
    names = _names.get(owner)
    if names is None:
        names = _names[owner] = _names_of(_type_of(module))
    values: list[Any] = []
    tensors: list[torch.Tensor] = []
    _read(module, names, values, tensors)
    return (repr(values), *tensors)


def _type_of(module: torch._C.ScriptModule) -> Any:
    return torch._C.ConcreteModuleType.from_jit_type(module._type())


def _names_of(module: Any) -> _Names:
    """Return the names of all attributes but parameters, which a graph names."""
    attributes = (
        name
        for name, (_, is_parameter) in module.get_attributes().items()
        if not is_parameter and name not in _NOT_OF_USER
    )
    submodules = ((name, _names_of(submodule)) for name, submodule in module.get_modules())
    return _Names(tuple(attributes), tuple((name, names) for name, names in submodules if any(names)))


def _read(module: Any, names: _Names, values: list[Any], tensors: list[torch.Tensor]) -> None:
    """Append the attributes. Each read makes an object, so a submodule is read once for all that it has."""
    for name in names.attributes:
        value = module.getattr(name)
        if isinstance(value, torch.Tensor):
            values.append(torch.Tensor)
            tensors.append(value)
        elif type(value) in _PLAIN or type(value) is list and _PLAIN.issuperset(map(type, value)):
            values.append(value)
        elif isinstance(value, torch._C.ScriptObject):
            values.append(type(value))
        else:
            leaves, structure = pytree.tree_flatten(value)
            tensors += (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
            values.append(([leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)], structure))
    for name, names_inside in names.submodules:
        _read(module.getattr(name), names_inside, values, tensors)
