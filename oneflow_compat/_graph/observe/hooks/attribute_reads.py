"""The hooks of attributes: of objects, classes and modules."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...._public_module import PublicModule, own_names
from ...guards.sources import ATTRIBUTES, OF_CAPTURE, TYPE, Answer, Attribute, Item
from ...guards.values import FREE_BASES, attributes_of, is_a, is_plain
from ...program.python_values import MISSING, is_python_class
from ..instrumentation.policy import is_installed_module, is_of_the_capture, origin_of_read
from ..messages import read_after_step
from .answers import has_rates_of_optimizer
from .class_reads import UNBOUND
from .size_types import need_number_itself
from .unfollowed import CLASS

if TYPE_CHECKING:
    from ..instrumentation.instrument import Site
    from .class_reads import ClassReads
    from .notes import Notes
    from .tensor_reads import TensorReads
    from .value_reads import ValueReads


class AttributeReads:
    """Guards attributes: in the object itself, in its class, or in the `__getattr__` of the class."""

    def __init__(self, notes: Notes, tensors: TensorReads, classes: ClassReads, values: ValueReads) -> None:
        self.notes, self.tensors, self.classes, self.values = notes, tensors, classes, values
        self.stepped: dict[int, Any] = {}  # id -> a schedule of build(), which makes its step after the run
        # (id(object), attribute) whose read through a proxy counts: the proxy's own read follows
        self.counted_by_proxy: tuple[int, str] | None = None

    def end_reads_of(self, schedule: object) -> None:
        """Refuse later reads of a schedule, whose numbers are those of before its step until the run ends.

        A run steps this very schedule, so no equal one may replace it.
        """
        self.stepped[id(schedule)] = schedule
        self.notes.pin(schedule)
        self.notes.seen -= {key for key in self.notes.seen if key[0] == id(schedule)}

    def attribute(self, instance: Any, name: str, site: Site) -> Any:
        if (id(instance), name) in self.notes.seen:
            return
        if id(instance) in self.stepped and name != "step" and site.is_user:
            raise read_after_step(type(instance), name)
        if is_a(instance, FREE_BASES):
            need_number_itself(instance, site)
            return self.tensors.tensor_attribute(instance, name, site)
        if self.is_read_of_proxy(instance, name, site):
            return
        self.notes.objects[id(instance)] = instance
        if type(instance) in (types.ModuleType, PublicModule):
            return self.module_attribute(instance, name, site)
        self.object_attribute(instance, name, site)

    def is_read_of_proxy(self, instance: object, name: str, site: Site) -> bool:
        """Whether the proxy of a module makes this read, which counts already. Note another read as seen."""
        key = (id(instance), name)
        if key == self.counted_by_proxy:
            self.counted_by_proxy = None
            return True
        if not site.counts:
            self.notes.seen.add(key)
        elif (origin := origin_of_read(instance, name)) is not None:
            self.attribute(origin, name, site)
            self.counted_by_proxy = id(origin), name
        return False

    def object_attribute(self, instance: Any, name: str, site: Site) -> Any:
        """Guard an attribute of an object that is no module."""
        if type(instance) is types.MethodType and not hasattr(types.MethodType, name):
            instance = instance.__func__  # a method has those of its function
        cls = type(instance)
        if is_a(instance, torch.nn.Module):
            self.notes.note_module(instance)
        if cls is super:
            return self.classes.super_attribute(instance.__thisclass__, instance.__self__, name, site)
        if is_a(instance, type):
            return self.attribute_of_class(instance, name, f"{instance.__name__}.{name}", site)
        in_class = self.classes.class_attribute(cls, cls.__mro__, name, site)
        if is_python_class(cls):
            self.notes.add(TYPE, instance, cls, f"the class of {cls.__name__}", site)
        self.instance_attribute(instance, name, in_class, f"{cls.__name__}.{name}", site)

    def attribute_of_class(self, cls: type, name: str, label: str, site: Site) -> None:
        if cls is FakeTensor and site.is_user:
            self.notes.warn(site, CLASS)
        if self.classes.class_attribute(cls, cls.__mro__, name, site) is MISSING:
            in_metaclass = self.classes.class_attribute(type(cls), type(cls).__mro__, name, site)
            if type(in_metaclass) is types.GetSetDescriptorType and site.is_user and name != "__dict__":
                self.values.slot(cls, name, in_metaclass, label, site)  # its __name__

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
            return self.values.slot(instance, name, in_class, label, site)
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
                self.values.contents(instance, site)

    def missing_attribute(self, instance: object, name: str, site: Site) -> None:
        """Guard the `__getattr__` of a class, and what it reads if it is written in C (dict.__getitem__)."""
        cls = type(instance)
        fallback = self.classes.class_attribute(cls, cls.__mro__, "__getattr__", site)
        if is_a(fallback, UNBOUND) and fallback is not object.__getattribute__:  # this one finds nothing new
            self.values.method_of(instance, fallback.__name__, (name,), site)

    def property(
        self, instance: object, name: str, in_class: property, label: str | None, site: Site
    ) -> None:
        """A property: what its function reads is observed, or else its value is guarded."""
        getter: Any = in_class.fget
        if name == "_last_lr" and is_of_the_capture(in_class):
            return self.rates(instance, getter, label, site)
        if type(getter) is types.FunctionType and not self.values.python_call(getter, site) and site.is_user:
            with contextlib.suppress(Exception):  # build() gets the same error in a moment
                if is_plain(getter(instance)):
                    self.notes.add(Attribute(name), instance, OF_CAPTURE, label, site)

    def rates(self, scheduler: Any, getter: Callable[[Any], Any], label: str | None, site: Site) -> None:
        """The rates of a schedule: inputs of the program (capture/values/option_reads.py), or constants."""
        rates, attributes = getter(scheduler), attributes_of(scheduler)
        if rates is attributes["_last_lr"]:
            self.notes.add(Item("_last_lr"), attributes, rates, label, site)
        else:
            self.notes.add(Answer((None, (scheduler,))), has_rates_of_optimizer, True, label, site)

    def module_attribute(self, module: types.ModuleType, name: str, site: Site) -> None:
        """Guard a name of a module. A capture changes some functions of torch while it runs."""
        names = own_names(module)
        value = OF_CAPTURE if is_installed_module(module) else names.get(name, MISSING)
        self.notes.add(Item(name), names, value, f"{module.__name__}.{name}", site)
        if value is not OF_CAPTURE:
            self.notes.add(TYPE, module, type(module), f"the class of {module.__name__}", site)
        if name not in names:
            label = f"{module.__name__}.__getattr__"
            self.notes.add(Item("__getattr__"), names, names.get("__getattr__", MISSING), label, site)


def _class_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
