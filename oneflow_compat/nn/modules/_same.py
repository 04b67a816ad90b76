"""The metaclass of module classes that only change the constructor of a torch class."""
from __future__ import annotations

from abc import ABCMeta


class SameAsTorch(ABCMeta):
    """`isinstance(module, oneflow.nn.X)` is also true of a plain `torch.nn.X`.

    A class that sets `_torch_class` in its own body stands for that class; a user's subclass does
    not. (ABCMeta, so that a user may mix such a class with an abstract one.)
    """

    def __instancecheck__(cls, instance):
        return isinstance(instance, cls.__dict__["_torch_class"]) if "_torch_class" in cls.__dict__ else type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, subclass):
        return issubclass(subclass, cls.__dict__["_torch_class"]) if "_torch_class" in cls.__dict__ else type.__subclasscheck__(cls, subclass)
