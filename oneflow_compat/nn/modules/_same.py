"""The metaclass of module classes that only add to a torch class."""

from __future__ import annotations

import copy
from abc import ABCMeta
from typing import Any

import torch


class SameAsTorch(ABCMeta):
    """A class that sets `_torch_class` in its own body stands for that class of torch; a user's subclass does
    not.

    `isinstance(module, oneflow.nn.X)` is also true of a plain `torch.nn.X`. The two classes are equal and
    have one hash, for code that looks types up. fx takes an instance for a layer of torch's, by its
    `__module__`. TorchScript gets torch's class, and so does a pickle of an instance that uses nothing of
    OneFlow's.

    `_extras` are the attributes that torch's class lacks, with the value at which the instance means the same
    as torch's. `_blank` are the arguments that torch's constructor needs. The base is ABCMeta, so that a user
    may mix such a class with an abstract one.
    """

    def __new__(meta, name: str, bases: tuple[type, ...], body: dict[str, Any], **kwargs: Any) -> SameAsTorch:
        if "_torch_class" in body:
            body.update(
                _own_module=body["__module__"],
                __module__=body["_torch_class"].__module__,
                __prepare_scriptable__=_scriptable,
                __reduce_ex__=_reduce,
                __copy__=_copy,
                __deepcopy__=_deepcopy,
            )
        return super().__new__(meta, name, bases, body, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(vars(cls).get("_torch_class", cls), instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return type.__subclasscheck__(vars(cls).get("_torch_class", cls), subclass)

    def __eq__(cls, value: object) -> bool:
        return cls is value or value is not None and value is vars(cls).get("_torch_class")

    def __hash__(cls) -> int:
        return type.__hash__(vars(cls).get("_torch_class", cls))

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        return vars(cls).get("_own_module") or vars(cls)["__module__"]


def _torch_state(module: torch.nn.Module) -> dict[str, Any] | None:
    """The attributes of the plain torch module that means the same, or None."""
    if "_torch_class" not in vars(type(module)):
        return None
    state = dict(module.__getstate__() if hasattr(module, "__getstate__") else vars(module))
    for name, plain in getattr(module, "_extras", {}).items():
        if state.pop(name) != (plain(module) if callable(plain) else plain):
            return None
    return state


def _scriptable(self: Any) -> Any:
    if _torch_state(self) is None:
        return self
    twin = object.__new__(self._torch_class)
    object.__setattr__(twin, "__dict__", self.__dict__)
    return twin


def _reduce(self: Any, protocol: Any) -> Any:
    state = _torch_state(self)
    if state is None:
        return object.__reduce_ex__(self, protocol)
    # a call of the class, not its __new__: a pickler refuses __new__ of another class, a safe loader other
    # callables
    return self._torch_class, getattr(self, "_blank", ()), state


def _copy(self: Any) -> Any:
    out = object.__new__(type(self))
    out.__setstate__(object.__reduce_ex__(self, 4)[2])
    return out


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    out = memo[id(self)] = object.__new__(type(self))
    out.__setstate__(copy.deepcopy(object.__reduce_ex__(self, 4)[2], memo))
    return out
