"""The metaclass of module classes that only change the constructor of a torch class."""
from __future__ import annotations

from abc import ABCMeta


class SameAsTorch(ABCMeta):
    """`isinstance(module, oneflow.nn.X)` is also true of a plain `torch.nn.X`.

    A class that sets `_torch_class` in its own body stands for that class; a user's subclass does
    not. (ABCMeta, so that a user may mix such a class with an abstract one.)
    """

    def __instancecheck__(cls, instance):
        return type.__instancecheck__(cls.__dict__.get("_torch_class", cls), instance)

    def __subclasscheck__(cls, subclass):
        return type.__subclasscheck__(cls.__dict__.get("_torch_class", cls), subclass)
