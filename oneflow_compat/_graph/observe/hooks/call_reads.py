"""The hooks of calls: what a function written in C receives, or a function whose frames are not observed."""

from __future__ import annotations

import builtins
import collections
import contextvars
import functools
import inspect
import marshal
import operator
import pickle
import re
import types
import typing
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from ...code_origins import is_of_torch
from ...guards.sources import ALIVE, CONTEXT
from ...guards.values import FREE, is_a, is_fake
from ...program.python_values import MISSING, is_python_class
from ..instrumentation.policy import DISPATCH, Policy, policy_of, stands_for_method
from .answers import context_variables
from .class_reads import UNBOUND
from .size_types import fix_size_whose_type_decides, need_numbers_of_numpy
from .unfollowed import (
    EFFECT,
    FINALIZER,
    GENERATOR,
    HOOK,
    MEMORY,
    NUMPY_FUNCTION,
    OUTPUT,
    WEAK_TENSOR,
    WRITER,
    adds_hook,
    has_effect,
    is_shown_by_logging,
    reads_generator,
    samples_globally,
    unfollowed_call,
    unfollowed_function,
)
from .value_reads import LRU_CACHE, MUTATORS

if TYPE_CHECKING:
    from ..instrumentation.instrument import Site
    from .answers import AnswerReads
    from .attribute_reads import AttributeReads
    from .class_reads import ClassReads
    from .foreign_reads import ForeignReads
    from .notes import Notes
    from .tensor_reads import TensorReads
    from .value_reads import ValueReads
    from .write_notes import WriteNotes

_QUIET_CALLS = frozenset(
    [isinstance, issubclass, id, type, callable, super, print, locals, globals, vars, dir, typing.cast]
)
_QUIET_IDS = frozenset(map(id, _QUIET_CALLS))
# the third one is of methods that get the class which defines them: those of zlib, _queue and re
_C_FUNCTIONS = (types.BuiltinFunctionType, types.MethodWrapperType, type(re.compile("").match))
_WRITERS = frozenset([setattr, delattr, operator.setitem, operator.delitem])
_IN_PLACE = {operator.setitem, operator.delitem} | {
    vars(operator)[f"i{name}"] for name in "add and concat mul or sub xor".split()
}
# They hand elements on, and look at none of them.
_OF_ELEMENTS = frozenset([enumerate, iter, len, list, reversed, tuple, zip])
# They read objects inside objects to any depth.
_SERIALIZERS = frozenset([pickle.dumps, pickle.dump, marshal.dumps])
_SERIALIZED_DEPTH = -8  # levels of objects more than another function reads
# Facts besides the layout and the elements.
_QUESTIONS_TO_TENSORS = frozenset(
    """
    data_ptr storage_offset is_shared is_pinned is_inference _is_view is_conj is_neg storage untyped_storage
    _typed_storage
    """.split()
)
_QUESTIONS_TO_MEMORY = frozenset(["data_ptr", "is_shared", "is_pinned", "is_inference", "is_neg"])
_COUNT_ELEMENTS = vars(collections)["_count_elements"]


def _changes_first_argument(function: object, arguments: Sequence[object]) -> bool:
    """Whether a C function changes a container: one of heapq and bisect, that of Counter, or of operator."""
    if not arguments or is_a(arguments[0], torch.Tensor):
        return False
    is_of_sequences = getattr(function, "__module__", None) in ("_heapq", "_bisect")
    return is_of_sequences or function is _COUNT_ELEMENTS or function in _IN_PLACE


class CallReads:
    """Guards what a call reads: the function, and what it receives if its own reads are not observed."""

    def __init__(
        self,
        notes: Notes,
        writes: WriteNotes,
        tensors: TensorReads,
        answers: AnswerReads,
        classes: ClassReads,
        values: ValueReads,
        attributes: AttributeReads,
        foreign: ForeignReads,
    ) -> None:
        self.notes, self.writes, self.tensors, self.answers = notes, writes, tensors, answers
        self.classes, self.values, self.attributes, self.foreign = classes, values, attributes, foreign
        self.printing_site: Site | None = None  # of the latest call of print()

    def call(self, function: Any, arguments: Sequence[Any], site: Site) -> Any:
        if id(function) in _QUIET_IDS or function is builtins.isinstance:  # a capture replaces it
            return self.quiet_call(function, arguments, site)
        need_numbers_of_numpy(function, arguments)
        cls, owner = type(function), None
        if cls is types.MethodType:
            owner, function = function.__self__, function.__func__
            cls = type(function)
        if cls is LRU_CACHE:
            self.values.cached_call(function, (*arguments,) if owner is None else (owner, *arguments), site)
            self.values.argument_contents(arguments, site)
        elif function is builtins.len:  # a capture replaces it
            self.values.argument_elements(arguments, site)
        elif cls is types.FunctionType:
            self.function_call(function, owner, arguments, site)
        elif cls in _C_FUNCTIONS or cls in UNBOUND or owner is not None:
            self.c_call(function, owner, arguments, site)
        elif is_a(function, type):
            self.class_call(function, arguments, site)
        else:
            self.object_call(function, arguments, site)

    def quiet_call(self, function: Any, arguments: Sequence[Any], site: Site) -> Any:
        if function is id and site.is_user and is_a(arguments[0], torch.Tensor):
            self.tensors.identity_of_tensor(arguments[0], site)
        if function in (builtins.isinstance, type) and arguments and is_a(arguments[0], torch.Tensor):
            self.tensors.class_of_argument(function, arguments, site)
        if function is vars and arguments and is_a(arguments[0], torch.Tensor):
            self.attributes.attribute(arguments[0], "__dict__", site)
        if function is print:
            self.output(site)
            self.printing_site = site
        if site.is_user and arguments:
            self.classes.inspection(function, arguments, site)
        return fix_size_whose_type_decides(function, arguments, site)

    def output(self, site: Site) -> None:
        """Note a text that build() shows. A program does not show it again."""
        if self.notes.ends_capture:
            self.notes.warn(site, OUTPUT)

    def function_call(self, function: Any, owner: Any, arguments: Sequence[Any], site: Site) -> None:
        """Note a call of a function that is written in Python."""
        if stands_for_method(function.__code__):
            return
        if function.__code__ is DISPATCH:
            self.answers.answer(function, tuple(arguments), "functools.singledispatch", site)
            return
        if site.is_user and is_shown_by_logging(function, owner):
            self.output(site)
        if site.is_user and adds_hook(function, owner):
            self.notes.warn(site, HOOK)
        self.sample(owner, function.__name__, site)
        self.question(function, owner, function.__name__, site)
        if not self.values.called_function(function, site):
            self.handed_methods(arguments, site)
            self.foreign.call(function, owner, arguments, site)

    def class_call(self, cls: Any, arguments: Sequence[Any], site: Site) -> None:
        if site.is_user and is_python_class(cls):
            if _is_observed(inspect.getattr_static(cls, "__del__", None)):
                self.notes.warn(site, FINALIZER)
            self.constructor(cls, site)
        if cls is str:
            self.answers.text_of_arrays(arguments, site)
        if cls in _OF_ELEMENTS or cls in (map, filter) and _is_observed(arguments[0]):
            self.values.argument_elements(arguments, site)
        elif not is_python_class(cls):
            self.values.argument_contents(arguments, site)
        if cls is not functools.partial and not _is_observed(inspect.getattr_static(cls, "__init__")):
            self.handed_methods(arguments, site)  # calls of a partial are observed

    def constructor(self, cls: type, site: Site) -> None:
        """Guard the functions that make an object of a user's class, with their defaults."""
        for name in ("__new__", "__init__"):
            function = self.classes.class_attribute(cls, cls.__mro__, name, site)
            function = getattr(function, "__func__", function)  # __new__ is a staticmethod
            if type(function) is types.FunctionType:
                self.values.called_function(function, site)
        metaclass = type(cls)
        if metaclass is not type:
            self.classes.class_attribute(metaclass, metaclass.__mro__, "__call__", site)

    def object_call(self, instance: Any, arguments: Sequence[Any], site: Site) -> Any:
        if is_a(instance, torch.nn.Module):
            self.values.visible(type(instance).__call__)
            return self.attributes.attribute(instance, "__call__", site)
        cls = type(instance)
        if cls is functools.partial:
            self.values.contents(instance, site)
            return self.call(instance.func, (*instance.args, *arguments), site)
        if cls in (weakref.ref, weakref.WeakMethod):
            return self.weak_reference(instance, site)
        self.values.contents(instance, site)
        if cls is operator.attrgetter:
            return self.attrgetter(instance, arguments, site)
        if cls is operator.methodcaller and arguments:
            name, positional = _called_method(instance)
            self.attributes.attribute(arguments[0], name, site)
            method = inspect.getattr_static(type(arguments[0]), name, None)
            return self.call(method, (arguments[0], *positional), site) if callable(method) else None
        what = unfollowed_function(instance) if cls is NUMPY_FUNCTION else None
        if what is not None:
            return self.notes.warn(site, what)
        function = inspect.getattr_static(cls, "__call__", None)
        if type(function) is types.FunctionType:
            code = function.__code__
            if policy_of(code, function.__globals__) is Policy.NONE and not is_of_torch(code.co_filename):
                self.values.all_attributes(instance, site, 1)
            return self.attributes.attribute(instance, "__call__", site)
        self.values.argument_contents(arguments, site)

    def weak_reference(self, reference: weakref.ref[Any], site: Site) -> None:
        """Guard whether the object is there. A program that reads a tensor keeps the tensor alive."""
        self.notes.add(ALIVE, reference, reference() is not None, None, site)
        self.notes.note_weak([reference])
        target = weakref.ref.__call__(reference)
        if site.is_user and is_a(target, torch.Tensor) and not is_a(target, torch.nn.Parameter):
            if not is_fake(target):
                self.notes.warn(site, WEAK_TENSOR)

    def handed_methods(self, arguments: Sequence[object], site: Site) -> None:
        """Note containers that code which is not observed may change: `stack.callback(log.append, "end")`."""
        for argument in arguments:
            if type(argument) in _C_FUNCTIONS:
                if argument in _WRITERS:
                    self.notes.warn(site, WRITER)
                method = cast(types.BuiltinFunctionType, argument)
                if method.__name__ in MUTATORS and not is_a(method.__self__, types.ModuleType):
                    self.writes.store_contents(method.__self__, site)

    def c_call(self, function: Any, owner: Any, arguments: Sequence[Any], site: Site) -> Any:
        name = getattr(function, "__name__", "")
        owner = getattr(function, "__self__", None) if owner is None else owner
        if type(function) in UNBOUND:
            if not arguments:
                return
            owner, arguments = arguments[0], arguments[1:]
        if site.is_user and has_effect(function, owner, name):
            self.notes.warn(site, EFFECT)
        if is_a(owner, types.ModuleType) or owner is None:
            return self.c_function(function, owner, name, arguments, site)
        self.c_method(function, owner, name, arguments, site)

    def c_method(
        self, function: Callable[..., Any], owner: Any, name: str, arguments: Sequence[Any], site: Site
    ) -> None:
        """Note a call of a method of an object that is written in C."""
        what = unfollowed_call(owner, name)
        if what is not None:
            return self.notes.warn(site, what)
        if name == "requires_grad_" and is_a(owner, torch.Tensor):
            self.writes.store_requires_grad(owner, site)
        self.sample(owner, name, site)
        if name == "__subclasses__" and is_a(owner, type):
            self.answers.answer(function, (), f"{owner.__name__}.__subclasses__()", site)
        self.question(function, owner, name, site)
        if site.is_user and is_a(owner, type):  # C looks up what it needs: autograd.Function.apply
            self.foreign.entries_of_classes((owner,), site)
        self.handed_methods(arguments, site)
        if not self.special_method(owner, name, arguments, site):
            if type(owner) not in FREE and not is_a(owner, (type, torch.Tensor)):
                self.values.method_of(owner, name, arguments, site)
                self.answers.getter(function, arguments, site)
            self.values.argument_contents(arguments, site)

    def sample(self, owner: object, name: str, site: Site) -> None:
        """End the capture at the line that samples; elsewhere its end tells (patches/random_state.py)."""
        if self.notes.ends_capture and samples_globally(owner, name):
            self.notes.warn(site, GENERATOR)

    def question(self, function: Any, owner: Any, name: str, site: Site) -> None:
        """Guard the answer of a method of a real tensor, or of a function that remembers its results."""
        if site.is_user and reads_generator(owner, name):
            self.notes.warn(site, GENERATOR)
        asks_tensor = name in _QUESTIONS_TO_TENSORS and is_a(owner, torch.Tensor)
        if asks_tensor and is_fake(owner):
            if site.is_user and name in _QUESTIONS_TO_MEMORY:
                self.notes.warn(site, MEMORY)
            return self.tensors.argument_method(owner, name, site)
        if asks_tensor or name == "cache_info" and type(owner) is LRU_CACHE:
            method = function if hasattr(function, "__self__") else types.MethodType(function, owner)
            self.answers.answer(method, (), f"{name}()", site)

    def special_method(self, owner: Any, name: str, arguments: Sequence[Any], site: Site) -> bool:
        """Note a method of C that reads or writes one source; return False for another method."""
        if is_a(owner, contextvars.ContextVar) and name == "get":
            self.notes.add(CONTEXT, owner, owner.get(MISSING), owner.name, site)
        elif name in ("__getattribute__", "__getattr__") and arguments:
            self.attributes.attribute(owner, arguments[0], site)
        elif name in ("__setattr__", "__delattr__") and arguments:
            self.writes.store_attribute(owner, arguments[0], site)
        else:
            return False
        return True

    def c_function(
        self, function: Callable[..., Any], owner: object, name: str, arguments: Sequence[Any], site: Site
    ) -> Any:
        """Note a call of a function of a module that is written in C."""
        what = unfollowed_call(owner, name)
        if what is not None:
            return self.notes.warn(site, what)
        if self.attribute_function(function, arguments, site):
            return
        if _changes_first_argument(function, arguments):
            self.writes.store_contents(arguments[0], site)
        self.handed_methods(arguments, site)
        self.shown(function, arguments, site)
        if function in (exec, eval):  # the names of the code are guarded, but those of separate locals
            return self.values.argument_contents(arguments[2:], site)
        if function in _OF_ELEMENTS:
            return self.values.argument_elements(arguments, site)
        if function in _SERIALIZERS:
            return self.values.contents(arguments[0], site, _SERIALIZED_DEPTH) if arguments else None
        if function is contextvars.copy_context:
            return self.answers.answer(context_variables, (), "the context variables", site)
        self.answers.getter(function, arguments, site)
        self.values.argument_contents(arguments, site)

    def attribute_function(self, function: object, arguments: Sequence[Any], site: Site) -> bool:
        """Note getattr(), setattr() and the like; return False for another function."""
        if len(arguments) < 2:
            return False
        instance, name = arguments[:2]
        if function in (getattr, hasattr) and type(name) is str:
            self.attributes.attribute(instance, name, site)
        elif function in (setattr, delattr):
            self.writes.store_attribute(instance, name, site)
        else:
            return False
        return True

    def shown(self, function: object, arguments: Sequence[Any], site: Site) -> None:
        """Note what a function that makes or shows a text reads besides its arguments."""
        if function is warnings.warn:
            if site.is_user:
                self.output(site)
            self.answers.warning(arguments, site)
        elif function in (repr, format):
            self.answers.text_of_arrays(arguments, site)

    def attrgetter(self, function: object, arguments: Sequence[Any], site: Site) -> None:
        for path in function.__reduce__()[1]:
            value = arguments[0] if arguments else None
            *outer, last = path.split(".")
            for name in outer:
                self.attributes.attribute(value, name, site)
                value = getattr(value, name, None)
            self.attributes.attribute(value, last, site)


def _called_method(caller: operator.methodcaller) -> tuple[str, tuple[Any, ...]]:
    """Return the name of the method that is called, and its positional arguments."""
    function, arguments = cast("tuple[Any, ...]", caller.__reduce__())
    name, *positional = (*function.args, *arguments) if is_a(function, functools.partial) else arguments
    return name, tuple(positional)


def _is_observed(function: object) -> bool:
    return (
        type(function) is types.FunctionType
        and policy_of(function.__code__, function.__globals__) is Policy.USER
    )
