"""The hooks of values: what containers, arrays, objects and functions hold.

    table["key"], key in table, len(rows), sorted(rows)     # elements
    pickle.dumps(settings)                                  # attributes and slots, to any depth
    scale(x)                                                # the code and the defaults of a function

These refer to each other: an object has special methods, a function has defaults, a default is an object.
"""

from __future__ import annotations

import collections
import ctypes
import decimal
import functools
import gc
import sys
import types
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...code_origins import is_of_standard_library, is_of_this_package
from ...guards.sources import (
    ATTRIBUTES,
    CONTENTS,
    FUNCTION,
    KEYS,
    SPECIAL_METHODS,
    Attribute,
    ClassAttribute,
    Contains,
    Element,
    Item,
)
from ...guards.values import (
    FREE,
    FREE_BASES,
    VIEWS,
    WEAK_CONTAINERS,
    attributes_of,
    contents,
    is_a,
    is_input,
    is_plain,
    special_methods,
)
from ...program.live_numbers import live_number
from ...program.python_values import MISSING, NumberOfCapture, is_python_class
from ..instrumentation.policy import Policy, is_installed_module, policy_of
from .answers import decimal_context
from .notes import COPIES_ARE_EQUAL
from .unfollowed import IDENTITY, uncompared_array, unfollowed_object

if TYPE_CHECKING:
    from ..instrumentation.frames import observed_frames
    from ..instrumentation.instrument import Site
    from .answers import AnswerReads
    from .notes import Notes
    from .tensor_reads import TensorReads
    from .write_notes import WriteNotes


LRU_CACHE = functools._lru_cache_wrapper
# methods, written in C, that change a container
MUTATORS = frozenset(
    """
    append extend insert remove clear sort reverse add discard update appendleft extendleft popleft rotate
    setdefault pop popitem __setitem__ __delitem__ __init__ intersection_update difference_update fill
    symmetric_difference_update move_to_end __setstate__ __ior__ __iadd__ __isub__ __iand__ __ixor__ __imul__
    """.split()
)
# They hand elements on, and look at none of them.
_HANDING_ON = frozenset(["copy", "items", "keys", "values", "__iter__", "__len__"])
_ITEM_READERS = frozenset(["get", "setdefault", "pop", "__getitem__", "__contains__"])
_WITHOUT_CONTENTS = (*FREE_BASES, NumberOfCapture, type, types.ModuleType)
_DEPTH = 3  # of objects inside objects that a C function receives


class ValueReads:
    """Guards what a value holds: elements, attributes, slots, defaults, special methods."""

    def __init__(self, notes: Notes, writes: WriteNotes, tensors: TensorReads, answers: AnswerReads) -> None:
        self.notes, self.writes, self.tensors, self.answers = notes, writes, tensors, answers
        self.read_whole: set[int] = set()  # ids of weak containers whose length or elements build() asks for
        self.frames: observed_frames | None = None  # the frames that are observed, while they are

    # -- elements ------------------------------------------------------------------------
    def item(self, container: Any, key: Any, site: Site) -> None:
        cls = type(container)
        if key is FakeTensor:
            self.tensors.class_as_key(container, site)
        if is_a(container, FREE_BASES):  # a tensor, which copies an index that is a list or an array
            self.contents(key, site, 1)
        if cls in FREE or is_a(container, FREE_BASES):
            return
        if is_a(container, dict) and cls.__getitem__ is dict.__getitem__:
            self.item_of_dict(container, key, site)
        elif type(key) is int and is_a(container, (list, collections.deque)) and _plain_items(cls):
            self.item_of_list(container, key, site)
        elif cls is not tuple:
            self.contents(container, site)

    def item_of_list(self, container: Any, key: int, site: Site) -> None:
        if not -len(container) <= key < len(container):
            self.contents(container, site)
        elif id(container) not in self.writes.snapshots or (Element(key), id(container)) in self.notes.guards:
            self.notes.add(Element(key), container, container[key], None, site)
        else:
            self.writes.elements_read.add(id(container))

    def item_of_dict(self, container: Any, key: object, site: Site) -> None:
        try:
            value = dict.get(container, key, MISSING)
        except TypeError:  # an unhashable key: the read itself raises
            return
        self.notes.add(Item(key), container, value, None, site)
        if value is MISSING and is_a(container, collections.defaultdict):
            self.writes.store_item(container, key, site)
            self.notes.add(Attribute("default_factory"), container, container.default_factory, None, site)

    def contains(self, container: Any, key: object, site: Site) -> None:
        if key is FakeTensor:
            self.tensors.class_as_key(container, site)
        if is_a(container, dict) and type(container).__contains__ is dict.__contains__:
            try:
                present = dict.__contains__(container, key)
            except TypeError:
                return
            self.notes.add(Contains(key), container, present, None, site)
        else:
            self.contents(container, site)
            if type(key) not in COPIES_ARE_EQUAL or key != key:  # each nan is another one to a container
                self.notes.pin(key)

    def argument_contents(self, arguments: Sequence[Any], site: Site) -> None:
        for argument in arguments:
            if type(argument) not in FREE:
                self.contents(argument, site, 1)

    def argument_elements(self, arguments: Sequence[Any], site: Site) -> None:
        for argument in arguments:
            if type(argument) not in FREE:
                self.elements_only(argument, site)

    def method_of(self, owner: object, name: str, arguments: Sequence[Any], site: Site) -> None:
        """A method, written in C, of a container or of another object."""
        if is_a(owner, dict) and name in _ITEM_READERS and arguments:
            self.item(owner, arguments[0], site)
        elif name in _HANDING_ON and is_a(owner, (dict, list, collections.deque, set)):
            self.elements_only(owner, site)
        elif name not in MUTATORS or contents(owner) is MISSING:  # hashlib.sha256().update
            self.contents(owner, site)
        if name in MUTATORS and (arguments or name not in ("__init__",)):
            if is_a(owner, dict) and arguments and name in ("setdefault", "pop", "__setitem__"):
                self.writes.store_item(owner, arguments[0], site)
            else:
                self.writes.store_contents(owner, site, appends=name in ("append", "extend"))

    # -- all of a value ------------------------------------------------------------------
    def contents(self, value: Any, site: Site, depth: int = 0) -> Any:
        """Guard all that a C function or an instruction may read of a value."""
        cls = type(value)
        if cls in VIEWS and not site.is_user:
            return
        if cls is decimal.Decimal:
            return self.answers.answer(decimal_context, (), "the context of decimal", site)
        if is_a(value, torch.Tensor):
            return self.tensors.layout(value, site)
        key = (id(value), CONTENTS)
        if cls in FREE or key in self.notes.seen or is_a(value, _WITHOUT_CONTENTS):
            return
        if cls is LRU_CACHE:
            return self.cached_call(value, (), site)
        self.special_methods(cls, site)
        if is_a(value, torch.nn.Module):
            return
        self.notes.seen.add(key)
        self.notes.objects[id(value)] = value
        what = uncompared_array(value) if is_a(value, np.ndarray) else None
        if what is not None:
            return self.notes.opaque.append((value, site, what))
        picture = self.picture(value)
        if picture is not MISSING:
            self.elements(value, picture, site, depth)
        elif not is_plain(value):
            self.other_contents(value, site, depth)

    def picture(self, value: object) -> Any:
        """Return the elements of a container before build() changed it, or MISSING for another value."""
        picture = self.writes.snapshots.get(id(value), MISSING)
        picture = contents(value) if picture is MISSING else picture
        if is_a(value, WEAK_CONTAINERS):
            elements = picture[0] if is_a(value, weakref.WeakSet) else picture
            self.notes.note_weak([element for element in elements if is_a(element, weakref.ref)])
        return picture

    def elements_only(self, value: object, site: Site) -> None:
        """Guard the elements of a container, and nothing of what these hold."""
        if is_a(value, WEAK_CONTAINERS):
            self.read_whole.add(id(value))
        key = (id(value), CONTENTS)
        if key not in self.notes.seen:
            self.contents(value, site, _DEPTH)
            self.notes.seen.discard(key)

    def elements(self, value: Any, picture: Any, site: Site, depth: int) -> None:
        """Guard the elements of a container or array, and what nested containers hold."""
        if type(value) is not tuple and not self.beside_live_numbers(value, picture, site):
            self.notes.add(CONTENTS, value, picture, None, site)
        if depth < _DEPTH and not is_a(value, np.ndarray):
            for element in picture:
                if type(element) not in FREE:
                    self.contents(element, site, depth or 1)

    def beside_live_numbers(self, container: object, picture: tuple[Any, ...], site: Site) -> bool:
        """Guard the keys of a dict, and the entries besides numbers that are inputs of the program.

        C code that reads such a number asks it for its value, and then it is a constant.
        """
        if not is_a(container, dict) or not any(map(live_number, picture)):
            return False
        keys, values = picture[: len(picture) // 2], picture[len(picture) // 2 :]
        self.notes.add(KEYS, container, keys, None, site)
        for key, value in zip(keys, values):
            if live_number(value) is None:
                self.notes.add(Item(key), container, value, None, site)
        return True

    def other_contents(self, value: Any, site: Site, depth: int) -> None:
        cls: Any = type(value)
        what = unfollowed_object(value)
        if cls is types.GeneratorType and self.frames is not None:
            self.frames.leave_out(value.gi_code)
        if what is not None:
            self.notes.no_guard(value, site, what)
        elif depth and depth < _DEPTH and not callable(value) and not _is_of_sympy(cls):
            self.all_attributes(value, site, depth + 1)
        elif has_unobserved_methods(cls):
            self.all_attributes(value, site, 1)

    def all_attributes(self, value: object, site: Site, depth: int) -> None:
        """Guard the attributes and the slots of an object that a C function receives."""
        attributes = attributes_of(value)
        if attributes is not None:
            self.notes.add(ATTRIBUTES, value, attributes, f"the attributes of {type(value).__name__}", site)
            self.contents(attributes, site, depth)
        for cls in filter(is_python_class, type(value).__mro__):
            for name, member in vars(cls).items():
                if type(member) is types.MemberDescriptorType:
                    self.slot(value, name, member, f"{cls.__name__}.{name}", site)
                    self.contents(getattr(value, name, None), site, depth)

    def slot(self, instance: Any, name: str, descriptor: Any, label: str | None, site: Site) -> Any:
        if is_a(instance, np.ndarray):
            return self.contents(instance, site)
        if is_a(instance, ctypes._Pointer):
            return self.notes.opaque.append((instance, site, "memory behind a pointer of ctypes"))
        try:
            value, again = descriptor.__get__(instance), descriptor.__get__(instance)
        except (AttributeError, TypeError, RuntimeError, ValueError):
            value = again = MISSING
        if value is again or is_plain(value):
            self.notes.add(Attribute(name), instance, value, label, site)
        else:  # made at each read from the object
            self.contents(instance, site)

    # -- functions -----------------------------------------------------------------------
    def python_call(self, function: types.FunctionType, site: Site) -> bool:
        """Guard the code and the defaults of a function; return False if its frames are not observed."""
        policy = policy_of(function.__code__, function.__globals__)
        if policy in (Policy.USER, Policy.INSTALLED):
            self.visible(function)
        if policy is Policy.USER:
            self.function(function, site)
        return policy in (Policy.USER, Policy.INSTALLED)

    def called_function(self, function: types.FunctionType, site: Site) -> bool:
        """Guard a function of any package that is called; return False if its frames are not observed."""
        if not is_of_this_package(function.__code__.co_filename):
            self.function(function, site)
        return self.python_call(function, site)

    def function(self, function: types.FunctionType, site: Site) -> None:
        """Guard the code and the defaults of a function."""
        if ("function", id(function)) in self.notes.seen:
            return
        self.notes.seen.add(("function", id(function)))
        self.notes.objects[id(function)] = function
        label = f"the code or the defaults of {function.__qualname__}"
        parts = function.__code__, function.__defaults__, function.__kwdefaults__
        self.notes.add(FUNCTION, function, parts, label, site)
        for defaults in filter(None, parts[1:]):
            self.contents(defaults, site)

    def visible(self, function: object) -> None:
        code = getattr(function, "__code__", None)
        is_left_out = getattr(function, "_torchdynamo_disable", False)
        if code is not None and not is_left_out and self.frames is not None:
            self.frames.make_visible(code)

    def special_methods(self, cls: type, site: Site) -> None:
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


def _plain_items(cls: Any) -> bool:
    return cls.__getitem__ in (list.__getitem__, collections.deque.__getitem__)


def _is_of_sympy(cls: type) -> bool:
    """Whether objects are expressions of sizes, which remember facts that they derive."""
    return cls.__module__.startswith("sympy.")


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
