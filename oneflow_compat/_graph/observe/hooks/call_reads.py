"""The hooks of calls: what a function written in C receives, or a function whose frames are not observed."""

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
from typing import Any, cast

import torch

from ...code_origins import is_of_this_package, is_of_torch
from ...guards.sources import ALIVE, CONTEXT, FUNCTION
from ...guards.values import FREE, contents, is_a, is_fake
from ...program.python_values import MISSING, is_python_class
from ..instrumentation.instrument import Site
from ..instrumentation.policy import (
    DISPATCH,
    Policy,
    policy_of,
    stands_for_method,
)
from .answers import AnswerReads, context_variables
from .class_reads import LRU_CACHE, UNBOUND, ClassReads
from .notes import Notes
from .size_types import fix_size_whose_type_decides, need_numbers_of_numpy
from .tensor_reads import TensorReads
from .unfollowed import (
    EFFECT,
    GENERATOR,
    MEMORY,
    NUMPY_FUNCTION,
    OUTPUT,
    WEAK_TENSOR,
    WRITER,
    has_effect,
    is_shown_by_logging,
    reads_generator,
    samples_globally,
    unfollowed_call,
    unfollowed_function,
)
from .write_notes import WriteNotes

_QUIET_CALLS = frozenset(
    [isinstance, issubclass, id, type, callable, super, print, locals, globals, vars, dir, typing.cast]
)
_QUIET_IDS = frozenset(map(id, _QUIET_CALLS))
# the third one is of methods that get the class which defines them: those of zlib, _queue and re
_C_FUNCTIONS = (types.BuiltinFunctionType, types.MethodWrapperType, type(re.compile("").match))
_MUTATORS = frozenset(
    """
    append extend insert remove clear sort reverse add discard update appendleft extendleft popleft rotate
    setdefault pop popitem __setitem__ __delitem__ __init__ intersection_update difference_update fill
    symmetric_difference_update move_to_end __setstate__ __ior__ __iadd__ __isub__ __iand__ __ixor__ __imul__
    """.split()
)
_WRITERS = frozenset([setattr, delattr, operator.setitem, operator.delitem])
_IN_PLACE = {operator.setitem, operator.delitem} | {
    vars(operator)[f"i{name}"] for name in "add and concat mul or sub xor".split()
}
# They hand elements on, and look at none of them.
_OF_ELEMENTS = frozenset([enumerate, iter, len, list, reversed, tuple, zip])
_HANDING_ON = frozenset(["copy", "items", "keys", "values", "__iter__", "__len__"])  # the same of containers
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
_ITEM_READERS = frozenset(["get", "setdefault", "pop", "__getitem__", "__contains__"])


def _changes_first_argument(function: object, arguments: Sequence[object]) -> bool:
    """Whether a C function changes a container: one of heapq and bisect, that of Counter, or of operator."""
    if not arguments or is_a(arguments[0], torch.Tensor):
        return False
    is_of_sequences = getattr(function, "__module__", None) in ("_heapq", "_bisect")
    return is_of_sequences or function is _COUNT_ELEMENTS or function in _IN_PLACE


class CallReads(ClassReads, AnswerReads, TensorReads):
    """The part of Reads that guards what calls read."""

    notes: Notes
    writes: WriteNotes
    tensors: TensorReads
    attribute: Callable[..., Any]
    item: Callable[..., Any]
    elements_only: Callable[..., Any]
    all_attributes: Callable[..., Any]
    make_visible: Callable[..., Any]
    printing_site: Site | None

    def call(self, function: Any, arguments: Sequence[Any], site: Site) -> Any:
        if id(function) in _QUIET_IDS or function is builtins.isinstance:  # a capture replaces it
            return self.quiet_call(function, arguments, site)
        need_numbers_of_numpy(function, arguments)
        cls, owner = type(function), None
        if cls is types.MethodType:
            owner, function = function.__self__, function.__func__
            cls = type(function)
        if cls is LRU_CACHE:
            self.cached_call(function, (*arguments,) if owner is None else (owner, *arguments), site)
            self.argument_contents(arguments, site)
        elif function is builtins.len:  # a capture replaces it
            self.argument_elements(arguments, site)
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
            self.attribute(arguments[0], "__dict__", site)
        if function is print:
            self.output(site)
            self.printing_site = site
        if site.is_user and arguments:
            self.inspection(function, arguments, site)
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
            self.answer(function, tuple(arguments), "functools.singledispatch", site)
            return
        if site.is_user and is_shown_by_logging(function, owner):
            self.output(site)
        self.sample(owner, function.__name__, site)
        self.question(function, owner, function.__name__, site)
        if not self.called_function(function, site):
            self.handed_methods(arguments, site)
            self.foreign_call(function, owner, arguments, site)

    def class_call(self, cls: Any, arguments: Sequence[Any], site: Site) -> None:
        what = unfollowed_call(cls, None, "")
        if what:
            self.notes.warn(site, what)
        if site.is_user and is_python_class(cls):
            self.constructor(cls, site)
        if cls is str:
            self.text_of_arrays(arguments, site)
        if cls in _OF_ELEMENTS or cls in (map, filter) and _is_observed(arguments[0]):
            self.argument_elements(arguments, site)
        elif not is_python_class(cls):
            self.argument_contents(arguments, site)
        if cls is not functools.partial and not _is_observed(inspect.getattr_static(cls, "__init__")):
            self.handed_methods(arguments, site)  # calls of a partial are observed

    def object_call(self, instance: Any, arguments: Sequence[Any], site: Site) -> Any:
        if is_a(instance, torch.nn.Module):
            self.visible(type(instance).__call__)
            return self.attribute(instance, "__call__", site)
        cls = type(instance)
        if cls is functools.partial:
            self.contents(instance, site)
            return self.call(instance.func, (*instance.args, *arguments), site)
        if cls in (weakref.ref, weakref.WeakMethod):
            return self.weak_reference(instance, site)
        self.contents(instance, site)
        if cls is operator.attrgetter:
            return self.attrgetter(instance, arguments, site)
        if cls is operator.methodcaller and arguments:
            name, positional = _called_method(instance)
            self.attribute(arguments[0], name, site)
            return self.call(getattr(arguments[0], name), positional, site)
        what = unfollowed_function(instance) if cls is NUMPY_FUNCTION else None
        if what is not None:
            return self.notes.warn(site, what)
        function = inspect.getattr_static(cls, "__call__", None)
        if type(function) is types.FunctionType:
            code = function.__code__
            if policy_of(code, function.__globals__) is Policy.NONE and not is_of_torch(code.co_filename):
                self.all_attributes(instance, site, 1)
            return self.attribute(instance, "__call__", site)
        self.argument_contents(arguments, site)

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
                if method.__name__ in _MUTATORS and not is_a(method.__self__, types.ModuleType):
                    self.writes.store_contents(method.__self__, site)

    def argument_contents(self, arguments: Sequence[Any], site: Site) -> None:
        for argument in arguments:
            if type(argument) not in FREE:
                self.contents(argument, site, 1)

    def argument_elements(self, arguments: Sequence[Any], site: Site) -> None:
        for argument in arguments:
            if type(argument) not in FREE:
                self.elements_only(argument, site)

    def python_call(self, function: Any, site: Site) -> bool:
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
        if code is not None and not getattr(function, "_torchdynamo_disable", False):
            self.make_visible(code)

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
        what = unfollowed_call(function, owner, name)
        if what is not None:
            return self.notes.warn(site, what)
        self.sample(owner, name, site)
        if name == "__subclasses__" and is_a(owner, type):
            self.answer(function, (), f"{owner.__name__}.__subclasses__()", site)
        self.question(function, owner, name, site)
        if site.is_user and is_a(owner, type):  # C looks up what it needs: autograd.Function.apply
            self.entries_of_classes((owner,), site)
        self.handed_methods(arguments, site)
        if not self.special_method(owner, name, arguments, site):
            if type(owner) not in FREE and not is_a(owner, (type, torch.Tensor)):
                self.method_of(owner, name, arguments, site)
                self.getter(function, arguments, site)
            self.argument_contents(arguments, site)

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
            self.answer(method, (), f"{name}()", site)

    def special_method(self, owner: Any, name: str, arguments: Sequence[Any], site: Site) -> bool:
        """Note a method of C that reads or writes one source; return False for another method."""
        if is_a(owner, contextvars.ContextVar) and name == "get":
            self.notes.add(CONTEXT, owner, owner.get(MISSING), owner.name, site)
        elif name in ("__getattribute__", "__getattr__") and arguments:
            self.attribute(owner, arguments[0], site)
        elif name in ("__setattr__", "__delattr__") and arguments:
            self.writes.store_attribute(owner, arguments[0], site)
        else:
            return False
        return True

    def method_of(self, owner: object, name: str, arguments: Sequence[Any], site: Site) -> None:
        """A method, written in C, of a container or of another object."""
        if is_a(owner, dict) and name in _ITEM_READERS and arguments:
            self.item(owner, arguments[0], site)
        elif name in _HANDING_ON and is_a(owner, (dict, list, collections.deque, set)):
            self.elements_only(owner, site)
        elif name not in _MUTATORS or contents(owner) is MISSING:  # hashlib.sha256().update
            self.contents(owner, site)
        if name in _MUTATORS and (arguments or name not in ("__init__",)):
            if is_a(owner, dict) and arguments and name in ("setdefault", "pop", "__setitem__"):
                self.writes.store_item(owner, arguments[0], site)
            else:
                self.writes.store_contents(owner, site, appends=name in ("append", "extend"))

    def c_function(
        self, function: object, owner: object, name: str, arguments: Sequence[Any], site: Site
    ) -> Any:
        what = unfollowed_call(function, owner, name)
        if what is not None:
            return self.notes.warn(site, what)
        if function in (getattr, hasattr) and len(arguments) > 1 and type(arguments[1]) is str:
            return self.attribute(arguments[0], arguments[1], site)
        if function in (setattr, delattr) and len(arguments) > 1:
            return self.writes.store_attribute(arguments[0], arguments[1], site)
        if _changes_first_argument(function, arguments):
            self.writes.store_contents(arguments[0], site)
        if function is contextvars.copy_context:
            return self.answer(context_variables, (), "the context variables", site)
        self.handed_methods(arguments, site)
        if function in (exec, eval):  # the names of the code are guarded, but those of separate locals
            return self.argument_contents(arguments[2:], site)
        if function in _OF_ELEMENTS:
            return self.argument_elements(arguments, site)
        if function is warnings.warn:
            if site.is_user:
                self.output(site)
            self.warning(arguments, site)
        if function in (repr, format):
            self.text_of_arrays(arguments, site)
        if function in _SERIALIZERS:
            return self.contents(arguments[0], site, _SERIALIZED_DEPTH) if arguments else None
        self.getter(function, arguments, site)
        self.argument_contents(arguments, site)

    def attrgetter(self, function: object, arguments: Sequence[Any], site: Site) -> None:
        for path in function.__reduce__()[1]:
            value = arguments[0] if arguments else None
            for name in path.split("."):
                self.attribute(value, name, site)
                value = getattr(value, name, None)


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
