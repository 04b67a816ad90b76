"""The hooks of classes: what an object gets from its class, and what build() asks of classes."""

from __future__ import annotations

import abc
import types
import typing
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...guards.sources import TYPE, ClassAttribute
from ...guards.values import attributes_of, is_a
from ...program.python_values import MISSING, is_python_class

if TYPE_CHECKING:
    from ..instrumentation.instrument import Site
    from .answers import AnswerReads
    from .notes import Notes

UNBOUND = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)


class ClassReads:
    """Guards what classes define, and the answers of isinstance(), issubclass() and the like."""

    def __init__(self, notes: Notes, answers: AnswerReads) -> None:
        self.notes, self.answers = notes, answers

    def class_attribute(self, owner: Any, mro: Any, name: str, site: Site | None) -> Any:
        """Guard the first class of the order that has the name, and those before that may get it."""
        key = ("class attribute", id(owner), len(mro), name)
        if key in self.notes.seen:
            return next((cls.__dict__[name] for cls in mro if name in cls.__dict__), MISSING)
        if site is None or not site.counts:
            self.notes.seen.add(key)
            self.notes.objects[id(owner)] = owner
        if is_python_class(owner):
            self.notes.add(
                ClassAttribute("__mro__"), owner, owner.__mro__, f"the bases of {owner.__name__}", site
            )
        for cls in mro:
            value = cls.__dict__.get(name, MISSING)
            if cls is not type and (value is not MISSING or is_python_class(cls)):  # type is immutable
                label = f"{cls.__name__}.{name}"
                self.notes.add(ClassAttribute(name), cls, value, label, site)
            if value is not MISSING:
                return value
        return MISSING

    def super_attribute(self, cls: Any, instance: Any, name: Any, site: Site) -> None:
        if instance is None:
            return
        if is_a(instance, torch.nn.Module):
            self.notes.note_module(instance)
        mro = (instance if is_a(instance, type) else type(instance)).__mro__
        if cls in mro:
            self.class_attribute(cls, mro[mro.index(cls) + 1 :], name, site)

    def inspection(self, function: object, arguments: Sequence[Any], site: Site) -> None:
        """A call of type(), dir(), isinstance() or issubclass()."""
        subject = arguments[0]
        if function in (isinstance, issubclass):
            self.class_check(function, arguments)
        elif function is type and len(arguments) == 1 and is_python_class(type(subject)):
            self.notes.add(TYPE, subject, type(subject), f"the class of {type(subject).__name__}", site)
        elif function is dir and attributes_of(subject) is not None:
            self.answers.answer(dir, (subject,), f"dir({type(subject).__name__})", site)

    def class_check(self, function: object, arguments: Sequence[Any]) -> None:
        """Guard which abstract classes a class is registered with."""
        subject, classes = arguments if len(arguments) == 2 else (None, ())
        cls: Any = type(subject) if function is isinstance else subject
        for base in _abstract_classes(classes) if isinstance(cls, type) else ():
            for name in getattr(typing, "_get_protocol_attrs", _no_names)(base) if _is_protocol(base) else ():
                self.class_attribute(cls, cls.__mro__, name, None)
            self.answers.answer(issubclass, (cls, base), f"issubclass({cls.__name__}, {base.__name__})", None)


def _abstract_classes(classes: object) -> Iterator[type]:
    """Yield the classes of the second argument of isinstance() that others can be registered with."""
    for cls in classes if type(classes) is tuple else (classes,):
        if type(cls) is tuple:
            yield from _abstract_classes(cls)
        elif isinstance(cls, abc.ABCMeta):
            yield cls


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def _no_names(cls: type) -> tuple[str, ...]:
    return ()
