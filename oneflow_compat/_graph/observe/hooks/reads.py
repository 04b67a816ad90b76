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
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...._public_module import PublicModule, own_names
from ...code_origins import is_of_this_package
from ...guards.counters import Counting, Step, is_set_plainly, passes_on, size_as_number
from ...guards.guard import Guard, Source
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
    is_input,
    is_plain,
)
from ...program.live_numbers import live_number
from ...program.python_values import MISSING, NumberOfCapture, is_python_class
from ..instrumentation.policy import (
    fills_for_good,
    is_installed_module,
    is_of_the_capture,
    origin_of_read,
)
from ..messages import compared_with_argument, not_followed, read_after_step
from .answers import decimal_context, has_rates_of_optimizer
from .call_reads import CallReads
from .class_reads import LRU_CACHE, has_unobserved_methods
from .option_writes import OptionWrite, is_group, running_lines
from .size_types import need_number_itself
from .unfollowed import (
    ARGUMENT_ATTRIBUTE,
    CLASS,
    FILE,
    calling_site,
    uncompared_array,
    unfollowed_object,
)
from .writes import Write, place

if TYPE_CHECKING:
    from torch.nn import Module

    from ..instrumentation.instrument import Site


_WITHOUT_CONTENTS = (*FREE_BASES, NumberOfCapture, type, types.ModuleType)
# Their objects have equal copies, which `is` tells apart.
_COPIES_ARE_EQUAL = frozenset([int, float, complex, str, bytes])
ANY_KEY = object()
_DEPTH = 3  # of objects inside objects that a C function receives


class Reads(CallReads):
    """What one capture reads: guards in the order of their first reads, writes, and what has no guard."""

    def __init__(
        self, active: Callable[..., Any], on_module: Callable[[Module], None], ends_capture: bool
    ) -> None:
        """`ends_capture`: a read that no guard can follow raises, so that the call runs in eager mode."""
        self.active, self.on_module, self.ends_capture = active, on_module, ends_capture
        self.guards: dict[Any, Any] = {}  # (source, id(owner)) -> Guard
        self.objects: dict[Any, Any] = {}  # id -> object, so that no other object gets its id
        self.attribute_dicts: dict[int, int] = {}  # id(dict of attributes) -> id(its object)
        # a capture replaces built-in functions, whose names have guards of their own where code reads them
        self.seen: set[Any] = {(id(vars(builtins)), CONTENTS)}
        self.complete: set[Any] = set()  # ids of containers that the capture itself changes
        self.written: set[Any] = set()  # keys of guards whose source build() wrote
        self.snapshots: dict[Any, Any] = {}  # id(container) -> contents before build() changed it
        self.values_outside: set[int] = set()  # ids of what build() read from sources outside
        self.places: set[Any] = set()  # (id(owner), key) of what build() wrote and no dict has
        self.writes: list[Write] = []  # with what was there before
        # functions that keep their results, and how often they had computed one before each call
        self.caches_before: list[tuple[Any, int]] = []
        self.elements_read: set[int] = set()  # ids of lists that build() changed, and read without a guard
        self.rearranged: set[int] = set()  # ids of lists that build() changed in another way than at the end
        self.pinned: set[Any] = set()  # ids of objects that were compared by identity
        self.read_whole: set[int] = set()  # ids of weak containers whose length or elements build() asks for
        self.hashed: dict[int, Any] = {}  # id -> an argument that is in a set, or a key of a dict
        self.made: set[Any] = set()  # ids of modules that build() made
        self.stepped: dict[int, Any] = {}  # id -> a schedule of build(), which makes its step after the run
        self.twins: dict[int, Any] = {}  # id(object that stands for an argument) -> the argument
        self.modules: set[Any] = set()
        self.unfollowed: dict[Any, Any] = {}  # (label, location) -> (site, what it is)
        self.argument_facts: dict[Any, Any] = {}  # (id(node), name) -> (node, name, value, label, site)
        self.printing_site: Any = None  # of the latest call of print()
        self.opaque: list[Any] = []  # (object, site, what it is): no guard if it outlives build()
        self.counted: dict[Any, Counting] = {}  # key of a guard -> the steps of a number that build() counts
        # (id(object), attribute) whose read through a proxy counts: the proxy's own read follows
        self.counted_by_proxy: tuple[int, str] | None = None
        # the read of `variable += expression` -> its Counting and the number that it read
        self.begun_steps: dict[Site, tuple[Counting, Any]] = {}
        # (id(container), key) that build() assigned otherwise; key ANY_KEY: perhaps each of them
        self.assigned: set[Any] = set()
        self.option_writes: dict[int, OptionWrite] = {}  # id of a group of an optimizer -> its first write
        self.is_before_model: Callable[[], bool] = lambda: False  # whether build() has used no parameter yet
        self.weak: dict[int, weakref.ref[Any]] = {}  # id(object) -> the weak reference that build() follows
        # set by the frames that are observed
        self.make_visible: Callable[[Any], None] = lambda code: None
        self.leave_out: Callable[[types.CodeType], None] = lambda code: None

    # -- guards --------------------------------------------------------------------------
    def add(self, source: Source[Any], owner: Any, value: Any, label: str | None, site: Any) -> None:
        """Guard a source, unless build() wrote it or read it before."""
        name = source, id(owner)
        try:
            guard = self.guards.get(name)
            if guard is not None or name in self.written or id(owner) in self.complete:
                if guard is not None and guard.site is not None and guard.site.counts:
                    guard.site = site
                    self.count(name, value, site)
                return
        except TypeError:  # an unhashable key
            return
        if is_a(value, torch._C._FunctionBase):  # the context of an autograd function
            return
        self.objects[id(owner)] = owner
        self.guards[name] = Guard(source, owner, value, label, site)
        self.values_outside.add(id(value))
        self.count(name, value, site)

    def count(self, name: Any, value: Any, site: Any) -> None:
        """Note a step of a number, if the site reads it in order to count."""
        if site is None or not site.counts:
            return
        counting = self.counted.setdefault(name, Counting(value))
        if site.step is None:
            counting.add(value, None)
        elif site.step.operand is not None:
            counting.add(value, Step(site.step.function, site.step.operand))
        elif type(value) in (int, float):
            self.begun_steps[site] = counting, value

    def count_by(self, operand: Any, site: Any) -> None:
        """Note the operand of the step that a site began. A size is fixed for the program."""
        counting, value = self.begun_steps.pop(site, (None, None))
        if counting is not None:
            operand = size_as_number(operand)
            is_number = type(operand) in (int, float)
            counting.add(value, Step(site.step.function, operand) if is_number else None)

    def counters(self) -> Iterator[tuple[Guard, Counting]]:
        """Yield the guards of numbers that build() only counts, and their steps."""
        for name, counting in self.counted.items():
            guard = self.guards.get(name)
            if guard is None or guard.site is None or not guard.site.counts or not counting.steps:
                continue
            owner = guard.owner
            instance = self.objects.get(self.attribute_dicts.get(id(owner), 0))
            if (
                counting.is_complete
                and counting.is_at(guard.current())
                and self.assigned.isdisjoint([(id(owner), guard.source.key), (id(owner), ANY_KEY)])
                and (CONTENTS, id(owner)) not in self.guards
                and (id(owner), CONTENTS) not in self.seen
                and not self.twins.keys() & {id(owner), id(instance)}
                and is_set_plainly(guard.source, owner, instance)
            ):
                yield guard, counting

    def warn(self, site: Any, what: Any) -> None:
        """Note a value that has no guard."""
        if what == FILE and not site.is_user and calling_site(through_torch=False) is None:
            return  # torch reads a file of code, for example
        site = site if site.is_user else calling_site() or site
        if self.ends_capture:
            raise not_followed(site, what)
        self.unfollowed.setdefault((site.expression, what), site)

    def note_module(self, module: Any) -> None:
        """A module is met for the first time: one that build() makes now, or one that was there."""
        if id(module) in self.modules or id(module) in self.made:
            return
        self.objects[id(module)] = module
        if "_modules" not in object.__getattribute__(module, "__dict__"):
            self.made.add(id(module))
        else:
            self.modules.add(id(module))
            self.on_module(module)

    def global_name(self, scope: dict[str, Any], name: str, site: Any) -> None:
        if not site.counts:
            self.seen.add(("global", id(scope), name))
        self.add(Item(name), scope, scope.get(name, MISSING), name, site)
        if name not in scope:
            module = scope.get("__builtins__", builtins)
            self.add(Item(name), module if type(module) is dict else vars(module), OF_CAPTURE, name, site)

    def cell(self, cell: Any, site: Any) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # a variable that was deleted, or is not assigned yet
            value = MISSING
        self.add(CELL, cell, value, site.name, site)

    # -- attributes ----------------------------------------------------------------------
    def end_reads_of(self, schedule: Any) -> None:
        """Refuse later reads of a schedule, whose numbers are those of before its step until the run ends."""
        self.stepped[id(schedule)] = schedule
        self.seen -= {key for key in self.seen if key[0] == id(schedule)}

    def attribute(self, instance: Any, name: str, site: Any) -> Any:
        cls = type(instance)
        key = (id(instance), name)
        if key in self.seen:
            return
        if id(instance) in self.stepped and name != "step" and site.is_user:
            raise read_after_step(cls, name)
        if is_a(instance, FREE_BASES):
            need_number_itself(instance, site)
            return self.tensor_attribute(instance, name, site)
        if key == self.counted_by_proxy:
            self.counted_by_proxy = None
            return
        if not site.counts:
            self.seen.add(key)
        elif (origin := origin_of_read(instance, name)) is not None:
            self.attribute(origin, name, site)
            self.counted_by_proxy = id(origin), name
        self.objects[id(instance)] = instance
        if cls in (types.ModuleType, PublicModule):
            return self.module_attribute(instance, name, site)
        if cls is types.MethodType and not hasattr(cls, name):
            instance, cls = instance.__func__, type(instance.__func__)  # a method has those of its function
        if is_a(instance, torch.nn.Module):
            self.note_module(instance)
        if cls is super:
            return self.super_attribute(instance.__thisclass__, instance.__self__, name, site)
        label = f"{instance.__name__ if is_a(instance, type) else cls.__name__}.{name}"
        if is_a(instance, type):
            return self.attribute_of_class(instance, name, label, site)
        in_class = self.class_attribute(cls, cls.__mro__, name, site)
        if is_python_class(cls):
            self.add(TYPE, instance, cls, f"the class of {cls.__name__}", site)
        self.instance_attribute(instance, name, in_class, label, site)

    def attribute_of_class(self, cls: type, name: str, label: str, site: Any) -> None:
        if cls is FakeTensor and site.is_user:
            self.warn(site, CLASS)
        if self.class_attribute(cls, cls.__mro__, name, site) is MISSING:
            in_metaclass = self.class_attribute(type(cls), type(cls).__mro__, name, site)
            if type(in_metaclass) is types.GetSetDescriptorType and site.is_user and name != "__dict__":
                self.slot(cls, name, in_metaclass, label, site)  # its __name__

    def instance_attribute(
        self, instance: Any, name: str, in_class: Any, label: str | None, site: Any
    ) -> Any:
        """Guard the object's own entry, which a data descriptor of its class would hide."""
        cls = type(instance)
        if name in ("__dict__", "__class__"):
            return
        if is_a(instance, threading.local):
            return self.add(Attribute(name), instance, getattr(instance, name, MISSING), label, site)
        if is_a(in_class, property):
            return self.property(instance, name, in_class, label, site)
        if is_a(instance, types.ModuleType) and is_installed_module(instance):
            # for example torch.backends.cudnn.benchmark
            return self.add(Attribute(name), instance, OF_CAPTURE, label, site)
        if hasattr(type(in_class), "__set__") and not is_python_class(type(in_class)):
            # a slot, a getter of a class in C, a field of ctypes
            return self.slot(instance, name, in_class, label, site)
        attributes = attributes_of(instance)
        if attributes is not None:
            self.entry_of_attributes(instance, attributes, name, in_class, label, site)
        elif in_class is MISSING and not is_python_class(cls) and hasattr(instance, name):
            self.opaque.append((instance, site, f"an attribute of {_class_name(cls)}"))

    def entry_of_attributes(
        self,
        instance: Any,
        attributes: dict[str, Any],
        name: str,
        in_class: Any,
        label: str | None,
        site: Any,
    ) -> None:
        self.attribute_dicts[id(attributes)] = id(instance)
        cls = type(instance)
        if is_python_class(cls):
            self.add(ATTRIBUTES, instance, attributes, f"the attributes of {cls.__name__}", site)
        value = attributes.get(name, MISSING)
        self.add(Item(name), attributes, value, label, site)
        if in_class is MISSING and value is MISSING:
            self.missing_attribute(instance, name, site)
            if is_a(instance, np.ndarray):  # a field of a record array
                self.contents(instance, site)

    def property(self, instance: Any, name: str, in_class: property, label: str | None, site: Any) -> None:
        """A property: what its function reads is observed, or else its value is guarded."""
        getter: Any = in_class.fget
        if name == "_last_lr" and is_of_the_capture(in_class):
            return self.rates(instance, getter, label, site)
        if type(getter) is types.FunctionType and not self.python_call(getter, site) and site.is_user:
            with contextlib.suppress(Exception):  # build() gets the same error in a moment
                if is_plain(getter(instance)):
                    self.add(Attribute(name), instance, OF_CAPTURE, label, site)

    def rates(self, scheduler: Any, getter: Any, label: str | None, site: Any) -> None:
        """The rates of a schedule: inputs of the program (capture/values/option_reads.py), or constants."""
        rates, attributes = getter(scheduler), attributes_of(scheduler)
        if rates is attributes["_last_lr"]:
            self.add(Item("_last_lr"), attributes, rates, label, site)
        else:
            self.add(Answer((None, (scheduler,))), has_rates_of_optimizer, True, label, site)

    def slot(self, instance: Any, name: str, descriptor: Any, label: str | None, site: Any) -> Any:
        if is_a(instance, np.ndarray):
            return self.contents(instance, site)
        if is_a(instance, ctypes._Pointer):
            return self.opaque.append((instance, site, "memory behind a pointer of ctypes"))
        try:
            value, again = descriptor.__get__(instance), descriptor.__get__(instance)
        except (AttributeError, TypeError, RuntimeError, ValueError):
            value = again = MISSING
        if value is again or is_plain(value):
            self.add(Attribute(name), instance, value, label, site)
        else:  # made at each read from the object
            self.contents(instance, site)

    def module_attribute(self, module: Any, name: str, site: Any) -> None:
        """Guard a name of a module. A capture changes some functions of torch while it runs."""
        names = own_names(module)
        value = OF_CAPTURE if is_installed_module(module) else names.get(name, MISSING)
        self.add(Item(name), names, value, f"{module.__name__}.{name}", site)
        if value is not OF_CAPTURE:
            self.add(TYPE, module, type(module), f"the class of {module.__name__}", site)
        if name not in names:
            label = f"{module.__name__}.__getattr__"
            self.add(Item("__getattr__"), names, names.get("__getattr__", MISSING), label, site)

    def imported_module(self, scope: dict[str, Any], name: str, level: int, site: Any) -> None:
        """Guard which module an import statement gets, if it was imported before."""
        if level:
            name = importlib.util.resolve_name("." * level + name, scope.get("__package__") or "")
        while name:
            self.add(Item(name), sys.modules, sys.modules.get(name, MISSING), f"import {name}", site)
            name = name.rpartition(".")[0]

    # -- containers ----------------------------------------------------------------------
    def item(self, container: Any, key: Any, site: Any) -> None:
        cls = type(container)
        if key is FakeTensor:
            self.class_as_key(container, site)
        if is_a(container, FREE_BASES):  # a tensor, which copies an index that is a list or an array
            self.contents(key, site, 1)
        if cls in FREE or is_a(container, FREE_BASES):
            return
        if is_a(container, dict) and cls.__getitem__ is dict.__getitem__:
            self.item_of_dict(container, key, site)
        elif type(key) is int and is_a(container, (list, collections.deque)) and _plain_items(cls):
            if -len(container) <= key < len(container):
                value = container[key]
                if id(container) not in self.snapshots or (Element(key), id(container)) in self.guards:
                    self.add(Element(key), container, value, None, site)
                else:
                    self.elements_read.add(id(container))
            else:
                self.contents(container, site)
        elif cls is not tuple:
            self.contents(container, site)

    def item_of_dict(self, container: Any, key: Any, site: Any) -> None:
        try:
            value = dict.get(container, key, MISSING)
        except TypeError:  # an unhashable key: the read itself raises
            return
        self.add(Item(key), container, value, None, site)
        if value is MISSING and is_a(container, collections.defaultdict):
            self.store_item(container, key, site)
            self.add(Attribute("default_factory"), container, container.default_factory, None, site)

    def contains(self, container: Any, key: Any, site: Any) -> None:
        if key is FakeTensor:
            self.class_as_key(container, site)
        if is_a(container, dict) and type(container).__contains__ is dict.__contains__:
            try:
                present = dict.__contains__(container, key)
            except TypeError:
                return
            self.add(Contains(key), container, present, None, site)
        else:
            self.contents(container, site)
            if type(key) not in _COPIES_ARE_EQUAL or key != key:  # each nan is another one to a container
                self.pin(key)

    def contents(self, value: Any, site: Any, depth: int = 0) -> Any:
        """Guard all that a C function or an instruction may read of a value."""
        cls = type(value)
        if cls in VIEWS and not site.is_user:
            return
        if cls is decimal.Decimal:
            return self.answer(decimal_context, (), "the context of decimal", site)
        if is_a(value, torch.Tensor):
            return self.layout(value, site)
        key = (id(value), CONTENTS)
        if cls in FREE or key in self.seen or is_a(value, _WITHOUT_CONTENTS):
            return
        if cls is LRU_CACHE:
            return self.cached_call(value, (), site)
        self.special_methods(cls, site)
        if is_a(value, torch.nn.Module):
            return
        self.seen.add(key)
        self.objects[id(value)] = value
        what = uncompared_array(value) if is_a(value, np.ndarray) else None
        if what is not None:
            return self.opaque.append((value, site, what))
        picture = self.snapshots.get(id(value), MISSING)
        picture = contents(value) if picture is MISSING else picture
        if is_a(value, WEAK_CONTAINERS):
            elements = picture[0] if is_a(value, weakref.WeakSet) else picture
            self.note_weak([element for element in elements if is_a(element, weakref.ref)])
        if picture is not MISSING:
            self.elements(value, picture, site, depth)
        elif not is_plain(value):
            self.other_contents(value, site, depth)

    def elements_only(self, value: Any, site: Any) -> None:
        """Guard the elements of a container, and nothing of what these hold."""
        if is_a(value, WEAK_CONTAINERS):
            self.read_whole.add(id(value))
        key = (id(value), CONTENTS)
        if key not in self.seen:
            self.contents(value, site, _DEPTH)
            self.seen.discard(key)

    def note_weak(self, references: Iterable[weakref.ref[Any]]) -> None:
        """Let no guard keep the objects of weak references alive."""
        for reference in references:
            target = weakref.ref.__call__(reference)  # that of a method is its object
            if target is not None:
                self.weak[id(target)] = reference

    def elements(self, value: Any, picture: Any, site: Any, depth: int) -> None:
        """Guard the elements of a container or array, and what nested containers hold."""
        if type(value) is not tuple and not self.beside_live_numbers(value, picture, site):
            self.add(CONTENTS, value, picture, None, site)
        if depth < _DEPTH and not is_a(value, np.ndarray):
            for element in picture:
                if type(element) not in FREE:
                    self.contents(element, site, depth or 1)

    def beside_live_numbers(self, container: Any, picture: Any, site: Any) -> bool:
        """Guard the keys of a dict, and the entries besides numbers that are inputs of the program.

        C code that reads such a number asks it for its value, and then it is a constant.
        """
        if not is_a(container, dict) or not any(map(live_number, picture)):
            return False
        keys, values = picture[: len(picture) // 2], picture[len(picture) // 2 :]
        self.add(KEYS, container, keys, None, site)
        for key, value in zip(keys, values):
            if live_number(value) is None:
                self.add(Item(key), container, value, None, site)
        return True

    def other_contents(self, value: Any, site: Any, depth: int) -> None:
        cls: Any = type(value)
        what = unfollowed_object(value)
        if cls is types.GeneratorType:
            self.leave_out(value.gi_code)
        if what is not None:
            if self.ends_capture and id(value) in self.values_outside:  # before it moves an iterator on
                raise not_followed(site if site.is_user else calling_site() or site, what)
            self.opaque.append((value, site, what))
        elif depth and depth < _DEPTH and not callable(value) and not _is_of_sympy(cls):
            self.all_attributes(value, site, depth + 1)
        elif has_unobserved_methods(cls):
            self.all_attributes(value, site, 1)

    def all_attributes(self, value: Any, site: Any, depth: int) -> None:
        """Guard the attributes and the slots of an object that a C function receives."""
        attributes = attributes_of(value)
        if attributes is not None:
            self.add(ATTRIBUTES, value, attributes, f"the attributes of {type(value).__name__}", site)
            self.contents(attributes, site, depth)
        for cls in filter(is_python_class, type(value).__mro__):
            for name, member in vars(cls).items():
                if type(member) is types.MemberDescriptorType:
                    self.slot(value, name, member, f"{cls.__name__}.{name}", site)
                    self.contents(getattr(value, name, None), site, depth)

    def compare_twins(self, left: Any, right: Any) -> None:
        """Raise if an argument is compared by identity with itself: build() has another object for it."""
        for twin, value in ((left, right), (right, left)):
            if self.twins.get(id(twin), MISSING) is value:
                raise compared_with_argument(type(value))

    def pin(self, value: Any) -> None:
        """Another object may not replace this one: it was compared by identity."""
        if type(value) in _COPIES_ARE_EQUAL or is_python_class(type(value)) and not is_a(value, FREE_BASES):
            self.pinned.add(id(value))
            self.objects[id(value)] = value

    # -- writes ----------------------------------------------------------------------------
    def store_attribute(self, instance: Any, name: str, site: Any) -> None:
        if is_a(instance, torch.nn.Module):
            self.note_module(instance)
        if is_a(instance, torch.Tensor) and not hasattr(torch.Tensor, name) and is_input(instance):
            return self.warn(site, ARGUMENT_ATTRIBUTE)
        attributes = own_names(instance) if is_a(instance, types.ModuleType) else attributes_of(instance)
        if name in _NOT_IN_DICTS:
            attributes = None
        if attributes is not None:
            self.store_item(attributes, name, site)
        self.written.add((Attribute(name), id(instance)))
        if attributes is None:
            self.before_write_of_place(instance, name, site)
        self.assign(instance, name, site)
        self.objects[id(instance)] = instance

    def store_cell(self, cell: Any, site: Any) -> None:
        self.before_write_of_place(cell, CELL, site)
        self.assign(cell, None, site)

    def store_item(self, container: Any, key: Any, site: Any) -> None:
        self.before_write(container, site)
        if not is_a(container, dict):
            self.rearranged.add(id(container))
        try:
            self.written.update((source(key), id(container)) for source in (Item, Element, Contains))
        except TypeError:  # an unhashable key: a slice
            key = ANY_KEY
        self.assign(container, key if is_a(container, dict) else ANY_KEY, site)

    def store_contents(self, container: Any, site: Any, appends: bool = False) -> None:
        """Note a change of a container. `appends`: elements come to its end."""
        self.before_write(container, site)
        if not appends:
            self.rearranged.add(id(container))
        self.assign(container, ANY_KEY, site)

    def has_filled_caches(self) -> bool:
        """Whether code of build() ran in a function that will not run it again."""
        return any(function.cache_info().misses > misses for function, misses in self.caches_before)

    def assign(self, owner: Any, key: Any, site: Any) -> None:
        """Note an assignment, unless it is a step of a counter."""
        if not (site.counts or passes_on(site.code)):
            self.assigned.add((id(owner), key))

    def before_write(self, container: Any, site: Any) -> None:
        """Remember the contents of a container before build() changes it."""
        if is_group(container) and id(container) not in self.option_writes:
            write = OptionWrite(site.code_location, running_lines(), self.is_before_model())
            self.option_writes[id(container)] = write
        if id(container) in self.snapshots or type(container) in FREE:
            return
        self.objects[id(container)] = container
        what = uncompared_array(container) if is_a(container, np.ndarray) else None
        if what is not None:
            return self.opaque.append((container, site, f"{what} that build() writes"))
        picture = contents(container)
        if picture is not MISSING:
            self.snapshots[id(container)] = picture
            self.note_write(Write(container, None, picture, site))

    def before_write_of_place(self, owner: Any, key: Any, site: Any) -> None:
        """Remember the value of a slot, of an attribute of a class, or of a variable of a closure."""
        if (id(owner), key) not in self.places:
            self.places.add((id(owner), key))
            self.objects[id(owner)] = owner
            self.note_write(place(owner, key, site))

    def note_write(self, write: Write) -> None:
        """Note a write of code that belongs to the program, and does not fill a cache of a library.

        A list is no cache: add_param_group() appends to the groups of an optimizer.
        """
        code = write.site.code
        fills_cache = fills_for_good(code) and not is_a(write.owner, list)
        if fills_cache or is_of_this_package(code.co_filename) or id(write.owner) in self.complete:
            return
        self.writes.append(write)


# what assignments change besides the attribute dict of an object or function
_NOT_IN_DICTS = frozenset(["__class__", "__code__", "__defaults__", "__kwdefaults__"])


def _plain_items(cls: Any) -> bool:
    return cls.__getitem__ in (list.__getitem__, collections.deque.__getitem__)


def _class_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _is_of_sympy(cls: type) -> bool:
    """Whether objects are expressions of sizes, which remember facts that they derive."""
    return cls.__module__.startswith("sympy.")
