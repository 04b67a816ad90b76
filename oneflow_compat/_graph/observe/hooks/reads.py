"""The hooks of instrumented code: each read becomes a guard of the source that was read.

The hooks of calls are in call_reads.py, those of classes in class_reads.py.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import ctypes
import decimal
import importlib.util
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...._public_module import PublicModule, own_names
from ...guards.sources import (
    ATTRIBUTES,
    CELL,
    CONTENTS,
    KEYS,
    OF_CAPTURE,
    TYPE,
    Answer,
    Attribute,
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
    is_plain,
)
from ...program.live_numbers import live_number
from ...program.python_values import MISSING, NumberOfCapture, is_python_class
from ..instrumentation.instrument import Site
from ..instrumentation.policy import (
    is_installed_module,
    is_of_the_capture,
    origin_of_read,
)
from ..messages import compared_with_argument, read_after_step
from .answers import decimal_context, has_rates_of_optimizer
from .call_reads import CallReads
from .class_reads import LRU_CACHE, has_unobserved_methods
from .notes import COPIES_ARE_EQUAL, Notes
from .size_types import need_number_itself
from .tensor_reads import TensorReads
from .unfollowed import (
    CLASS,
    uncompared_array,
    unfollowed_object,
)
from .write_notes import WriteNotes

if TYPE_CHECKING:
    from torch.nn import Module


_WITHOUT_CONTENTS = (*FREE_BASES, NumberOfCapture, type, types.ModuleType)
_DEPTH = 3  # of objects inside objects that a C function receives


class Reads(CallReads):
    """What one capture reads: guards in the order of their first reads, writes, and what has no guard."""

    def __init__(
        self, active: Callable[..., Any], on_module: Callable[[Module], None], ends_capture: bool
    ) -> None:
        """`ends_capture`: a read that no guard can follow raises, so that the call runs in eager mode."""
        self.active = active
        self.notes = Notes(on_module, ends_capture)
        self.writes = WriteNotes(self.notes)
        self.tensors = TensorReads(self.notes)
        self.read_whole: set[int] = set()  # ids of weak containers whose length or elements build() asks for
        self.stepped: dict[int, Any] = {}  # id -> a schedule of build(), which makes its step after the run
        self.printing_site: Site | None = None  # of the latest call of print()
        # (id(object), attribute) whose read through a proxy counts: the proxy's own read follows
        self.counted_by_proxy: tuple[int, str] | None = None
        # set by the frames that are observed
        self.make_visible: Callable[[Any], None] = lambda code: None
        self.leave_out: Callable[[types.CodeType], None] = lambda code: None

    def ids_of_own_containers(self) -> set[int]:
        """Return the ids of the containers in which the reads are noted: no object outside."""
        parts = (self, self.notes, self.writes, self.tensors)
        return {id(value) for part in parts for value in vars(part).values()}

    def global_name(self, scope: dict[str, Any], name: str, site: Site) -> None:
        if not site.counts:
            self.notes.seen.add(("global", id(scope), name))
        self.notes.add(Item(name), scope, scope.get(name, MISSING), name, site)
        if name not in scope:
            module = scope.get("__builtins__", builtins)
            self.notes.add(
                Item(name), module if type(module) is dict else vars(module), OF_CAPTURE, name, site
            )

    def cell(self, cell: Any, site: Site) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # a variable that was deleted, or is not assigned yet
            value = MISSING
        self.notes.add(CELL, cell, value, site.name, site)

    # -- attributes ----------------------------------------------------------------------
    def end_reads_of(self, schedule: object) -> None:
        """Refuse later reads of a schedule, whose numbers are those of before its step until the run ends.

        A run steps this very schedule, so no equal one may replace it.
        """
        self.stepped[id(schedule)] = schedule
        self.notes.pin(schedule)
        self.notes.seen -= {key for key in self.notes.seen if key[0] == id(schedule)}

    def attribute(self, instance: Any, name: str, site: Site) -> Any:
        cls = type(instance)
        key = (id(instance), name)
        if key in self.notes.seen:
            return
        if id(instance) in self.stepped and name != "step" and site.is_user:
            raise read_after_step(cls, name)
        if is_a(instance, FREE_BASES):
            need_number_itself(instance, site)
            return self.tensors.tensor_attribute(instance, name, site)
        if key == self.counted_by_proxy:
            self.counted_by_proxy = None
            return
        if not site.counts:
            self.notes.seen.add(key)
        elif (origin := origin_of_read(instance, name)) is not None:
            self.attribute(origin, name, site)
            self.counted_by_proxy = id(origin), name
        self.notes.objects[id(instance)] = instance
        if cls in (types.ModuleType, PublicModule):
            return self.module_attribute(instance, name, site)
        if cls is types.MethodType and not hasattr(cls, name):
            instance, cls = instance.__func__, type(instance.__func__)  # a method has those of its function
        if is_a(instance, torch.nn.Module):
            self.notes.note_module(instance)
        if cls is super:
            return self.super_attribute(instance.__thisclass__, instance.__self__, name, site)
        label = f"{instance.__name__ if is_a(instance, type) else cls.__name__}.{name}"
        if is_a(instance, type):
            return self.attribute_of_class(instance, name, label, site)
        in_class = self.class_attribute(cls, cls.__mro__, name, site)
        if is_python_class(cls):
            self.notes.add(TYPE, instance, cls, f"the class of {cls.__name__}", site)
        self.instance_attribute(instance, name, in_class, label, site)

    def attribute_of_class(self, cls: type, name: str, label: str, site: Site) -> None:
        if cls is FakeTensor and site.is_user:
            self.notes.warn(site, CLASS)
        if self.class_attribute(cls, cls.__mro__, name, site) is MISSING:
            in_metaclass = self.class_attribute(type(cls), type(cls).__mro__, name, site)
            if type(in_metaclass) is types.GetSetDescriptorType and site.is_user and name != "__dict__":
                self.slot(cls, name, in_metaclass, label, site)  # its __name__

    def instance_attribute(
        self, instance: Any, name: str, in_class: Any, label: str | None, site: Site
    ) -> Any:
        """Guard the object's own entry, which a data descriptor of its class would hide."""
        cls = type(instance)
        if name in ("__dict__", "__class__"):
            return
        if is_a(instance, threading.local):
            return self.notes.add(Attribute(name), instance, getattr(instance, name, MISSING), label, site)
        if is_a(in_class, property):
            return self.property(instance, name, in_class, label, site)
        if is_a(instance, types.ModuleType) and is_installed_module(instance):
            # for example torch.backends.cudnn.benchmark
            return self.notes.add(Attribute(name), instance, OF_CAPTURE, label, site)
        if hasattr(type(in_class), "__set__") and not is_python_class(type(in_class)):
            # a slot, a getter of a class in C, a field of ctypes
            return self.slot(instance, name, in_class, label, site)
        attributes = attributes_of(instance)
        if attributes is not None:
            self.entry_of_attributes(instance, attributes, name, in_class, label, site)
        elif in_class is MISSING and not is_python_class(cls) and hasattr(instance, name):
            self.notes.opaque.append((instance, site, f"an attribute of {_class_name(cls)}"))

    def entry_of_attributes(
        self,
        instance: object,
        attributes: dict[str, Any],
        name: str,
        in_class: object,
        label: str | None,
        site: Site,
    ) -> None:
        self.notes.attribute_dicts[id(attributes)] = id(instance)
        cls = type(instance)
        if is_python_class(cls):
            self.notes.add(ATTRIBUTES, instance, attributes, f"the attributes of {cls.__name__}", site)
        value = attributes.get(name, MISSING)
        self.notes.add(Item(name), attributes, value, label, site)
        if in_class is MISSING and value is MISSING:
            self.missing_attribute(instance, name, site)
            if is_a(instance, np.ndarray):  # a field of a record array
                self.contents(instance, site)

    def property(
        self, instance: object, name: str, in_class: property, label: str | None, site: Site
    ) -> None:
        """A property: what its function reads is observed, or else its value is guarded."""
        getter: Any = in_class.fget
        if name == "_last_lr" and is_of_the_capture(in_class):
            return self.rates(instance, getter, label, site)
        if type(getter) is types.FunctionType and not self.python_call(getter, site) and site.is_user:
            with contextlib.suppress(Exception):  # build() gets the same error in a moment
                if is_plain(getter(instance)):
                    self.notes.add(Attribute(name), instance, OF_CAPTURE, label, site)

    def rates(self, scheduler: Any, getter: Any, label: str | None, site: Site) -> None:
        """The rates of a schedule: inputs of the program (capture/values/option_reads.py), or constants."""
        rates, attributes = getter(scheduler), attributes_of(scheduler)
        if rates is attributes["_last_lr"]:
            self.notes.add(Item("_last_lr"), attributes, rates, label, site)
        else:
            self.notes.add(Answer((None, (scheduler,))), has_rates_of_optimizer, True, label, site)

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

    def module_attribute(self, module: Any, name: str, site: Site) -> None:
        """Guard a name of a module. A capture changes some functions of torch while it runs."""
        names = own_names(module)
        value = OF_CAPTURE if is_installed_module(module) else names.get(name, MISSING)
        self.notes.add(Item(name), names, value, f"{module.__name__}.{name}", site)
        if value is not OF_CAPTURE:
            self.notes.add(TYPE, module, type(module), f"the class of {module.__name__}", site)
        if name not in names:
            label = f"{module.__name__}.__getattr__"
            self.notes.add(Item("__getattr__"), names, names.get("__getattr__", MISSING), label, site)

    def imported_module(self, scope: dict[str, Any], name: str, level: int, site: Site) -> None:
        """Guard which module an import statement gets, if it was imported before."""
        if level:
            name = importlib.util.resolve_name("." * level + name, scope.get("__package__") or "")
        while name:
            self.notes.add(Item(name), sys.modules, sys.modules.get(name, MISSING), f"import {name}", site)
            name = name.rpartition(".")[0]

    # -- containers ----------------------------------------------------------------------
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
            if -len(container) <= key < len(container):
                value = container[key]
                if (
                    id(container) not in self.writes.snapshots
                    or (Element(key), id(container)) in self.notes.guards
                ):
                    self.notes.add(Element(key), container, value, None, site)
                else:
                    self.writes.elements_read.add(id(container))
            else:
                self.contents(container, site)
        elif cls is not tuple:
            self.contents(container, site)

    def item_of_dict(self, container: Any, key: Any, site: Site) -> None:
        try:
            value = dict.get(container, key, MISSING)
        except TypeError:  # an unhashable key: the read itself raises
            return
        self.notes.add(Item(key), container, value, None, site)
        if value is MISSING and is_a(container, collections.defaultdict):
            self.writes.store_item(container, key, site)
            self.notes.add(Attribute("default_factory"), container, container.default_factory, None, site)

    def contains(self, container: Any, key: Any, site: Site) -> None:
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

    def contents(self, value: Any, site: Site, depth: int = 0) -> Any:
        """Guard all that a C function or an instruction may read of a value."""
        cls = type(value)
        if cls in VIEWS and not site.is_user:
            return
        if cls is decimal.Decimal:
            return self.answer(decimal_context, (), "the context of decimal", site)
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
        picture = self.writes.snapshots.get(id(value), MISSING)
        picture = contents(value) if picture is MISSING else picture
        if is_a(value, WEAK_CONTAINERS):
            elements = picture[0] if is_a(value, weakref.WeakSet) else picture
            self.notes.note_weak([element for element in elements if is_a(element, weakref.ref)])
        if picture is not MISSING:
            self.elements(value, picture, site, depth)
        elif not is_plain(value):
            self.other_contents(value, site, depth)

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

    def beside_live_numbers(self, container: Any, picture: Any, site: Site) -> bool:
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
        if cls is types.GeneratorType:
            self.leave_out(value.gi_code)
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

    def compare_twins(self, left: object, right: object) -> None:
        """Raise if an argument is compared by identity with itself: build() has another object for it."""
        for twin, value in ((left, right), (right, left)):
            if self.notes.twins.get(id(twin), MISSING) is value:
                raise compared_with_argument(type(value))


def _plain_items(cls: Any) -> bool:
    return cls.__getitem__ in (list.__getitem__, collections.deque.__getitem__)


def _class_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _is_of_sympy(cls: type) -> bool:
    """Whether objects are expressions of sizes, which remember facts that they derive."""
    return cls.__module__.startswith("sympy.")
