"""Guards of classes, and of functions that remember their results."""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from ...code_origins import is_of_standard_library
from ...guards.sources import SPECIAL_METHODS, ClassAttribute, Item
from ...guards.values import is_a, is_input, is_plain, special_methods
from ...program.python_values import MISSING, is_python_class
from ..instrumentation.instrument import Site
from ..instrumentation.policy import Policy, is_installed_module, policy_of
from .notes import Notes
from .tensor_reads import TensorReads
from .unfollowed import IDENTITY
from .write_notes import WriteNotes

LRU_CACHE = functools._lru_cache_wrapper
UNBOUND = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)


class ClassReads:
    """The part of Reads that guards what an object gets from its class."""

    notes: Notes
    writes: WriteNotes
    tensors: TensorReads
    c_call: Callable[..., Any]
    python_call: Callable[..., Any]
    called_function: Callable[..., Any]
    visible: Callable[..., Any]

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

    def constructor(self, cls: type, site: Site) -> None:
        """Guard the functions that make an object of a user's class, with their defaults."""
        for name in ("__new__", "__init__"):
            function = self.class_attribute(cls, cls.__mro__, name, site)
            function = getattr(function, "__func__", function)  # __new__ is a staticmethod
            if type(function) is types.FunctionType:
                self.called_function(function, site)
        metaclass = type(cls)
        if metaclass is not type:
            self.class_attribute(metaclass, metaclass.__mro__, "__call__", site)

    def missing_attribute(self, instance: object, name: str, site: Site) -> None:
        """Guard the `__getattr__` of a class, and what it reads if it is written in C (dict.__getitem__)."""
        cls = type(instance)
        fallback = self.class_attribute(cls, cls.__mro__, "__getattr__", site)
        if is_a(fallback, UNBOUND):
            self.c_call(fallback, None, (instance, name), site)

    def super_attribute(self, cls: Any, instance: Any, name: Any, site: Site) -> None:
        if instance is None:
            return
        if is_a(instance, torch.nn.Module):
            self.notes.note_module(instance)
        mro = (instance if is_a(instance, type) else type(instance)).__mro__
        if cls in mro:
            self.class_attribute(cls, mro[mro.index(cls) + 1 :], name, site)

    def special_methods(self, cls: Any, site: Site) -> None:
        """Guard what operators and built-in functions call of an object of this class."""
        if ("special methods", id(cls)) in self.notes.seen or not is_python_class(cls):
            return
        self.notes.seen.add(("special methods", id(cls)))
        for base in filter(is_python_class, cls.__mro__):
            module, methods = sys.modules.get(base.__module__), special_methods(base)
            for method in methods:
                method = getattr(method, "__func__", method)  # of a classmethod
                if type(method) is types.FunctionType and method.__name__ not in ("__init__", "__new__"):
                    self.python_call(method, site)
            if module is None or not is_installed_module(module):
                label = f"the bases of {base.__name__}"
                self.notes.add(ClassAttribute("__mro__"), base, base.__mro__, label, site)
                label = f"the special methods of {base.__name__}"
                self.notes.add(SPECIAL_METHODS, base, methods, label, site)

    def cached_call(self, function: Any, arguments: tuple[Any, ...], site: Site) -> None:
        """Guard the entry of a cache that answers a call, because the function itself is not called.

        The names of keywords are not known here, so each entry that may belong to the call is guarded.
        """
        wrapped = function.__wrapped__
        if (
            not hasattr(wrapped, "__code__")
            or policy_of(wrapped.__code__, wrapped.__globals__) is not Policy.USER
        ):
            return
        if any(is_a(argument, torch.Tensor) and is_input(argument) for argument in arguments):
            self.notes.warn(site, IDENTITY)  # the cache finds its entry by the tensor
        entries = _entries(function)
        self.writes.caches_before.append((function, function.cache_info().misses))
        for key in [key for key in entries if _may_answer(key, arguments)]:
            self.notes.add(Item(key), entries, entries[key], f"the cache of {function.__name__}", site)


@functools.lru_cache(1024)
def has_unobserved_methods(cls: type) -> bool:
    """Whether special methods of a class are Python code of the standard library that is not observed."""
    methods = (method for base in cls.__mro__[:-1] for method in special_methods(base))
    return any(
        policy_of(method.__code__, method.__globals__) is Policy.NONE
        and is_of_standard_library(method.__code__.co_filename)
        for method in methods
        if type(method) is types.FunctionType
    )


def _entries(function: functools._lru_cache_wrapper[Any]) -> dict[Any, Any]:
    """Return the dict in which functools.lru_cache keeps its results."""
    dicts = [value for value in gc.get_referents(function) if type(value) is dict]
    return next(value for value in dicts if value is not vars(function))


def _may_answer(key: object, arguments: tuple[Any, ...]) -> bool:
    """Whether an entry may belong to a call. Its key is the argument, or a tuple with all arguments."""
    if type(key) is not tuple:  # an int or a str
        return all(type(value) is type(key) and value == key or not is_plain(value) for value in arguments)
    return all(any(not is_plain(value) or value == part for part in key) for value in arguments)
