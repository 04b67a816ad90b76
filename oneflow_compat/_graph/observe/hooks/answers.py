"""Questions that build() asks the interpreter, torch or a class: a guard asks them again before each call.

Their answers lie in no attribute that Python can see: the number of threads, the level of a logger, the
classes that are registered with an abstract class, the precision of decimal numbers.
"""

import abc
import contextvars
import decimal
import importlib.util
import inspect
import re
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from ...._active import outside_capture
from ...code_origins import is_of_standard_library
from ...guards.sources import OF_CAPTURE, TYPE, Answer, Attribute
from ...guards.values import FREE_BASES, WEAK_CONTAINERS, arithmetic_of, attributes_of, is_a, is_plain
from ...program.python_values import is_python_class
from ..instrumentation.instrument import Site
from ..instrumentation.policy import Policy, policy_of_module
from .notes import Notes
from .unfollowed import FILE, unfollowed_function
from .write_notes import WriteNotes

_PACKAGES = (
    "torch",
    "_thread",
    "logging",
    "gc",
    "sys",
    "threading",
    "locale",
    "_locale",
    "os",
    "posix",
    "multiprocessing",
    "numpy",
)
_GETTER = re.compile(r"(get|is|are|has|initial|current).+|locked|cpu_count")
# A capture compares these modes itself (torch_settings.py, engine.py), or changes them while build() runs.
_COMPARED_ELSEWHERE = re.compile(r".*(grad|autocast|compiling|tracing|scripting).*|is_tensor")


_IMPORTERS = frozenset([importlib.import_module, importlib.util.find_spec])
_REMOVERS = frozenset([RemovableHandle.remove, RemovableHandle.__exit__])
# They return nothing, and a logger remembers its answers: no result depends on either.
_LOGGING_CALLS = frozenset(["debug", "info", "warning", "error", "exception", "critical", "log"])


def is_getter(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether a function of torch or of the standard library tells a setting, for plain arguments."""
    name, module = getattr(function, "__name__", ""), getattr(function, "__module__", None) or ""
    owner = getattr(function, "__self__", None)
    package = (module or getattr(owner, "__name__", "") or type(owner).__module__).partition(".")[0]
    if package not in _PACKAGES or not _GETTER.fullmatch(name) or _COMPARED_ELSEWHERE.fullmatch(name):
        return False
    return all(map(is_plain, arguments)) and _is_plain_answer(function, arguments)


def _is_plain_answer(function: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    try:
        with outside_capture():
            answer = function(*arguments)
            parts = (
                answer.values() if type(answer) is dict else answer if type(answer) is tuple else (answer,)
            )
            return all(map(is_plain, parts))
    except Exception:  # build() gets the same error in a moment
        return False


def abstract_classes(classes: object) -> Iterator[type]:
    """Yield the classes of the second argument of isinstance() that others can be registered with."""
    for cls in classes if type(classes) is tuple else (classes,):
        if type(cls) is tuple:
            yield from abstract_classes(cls)
        elif isinstance(cls, abc.ABCMeta):
            yield cls


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def _no_names(cls: type) -> tuple[str, ...]:
    return ()


def decimal_context() -> tuple[Any, ...]:
    """Return what decides the results of decimal arithmetic in this thread."""
    return arithmetic_of(decimal.getcontext())


def is_warning_an_error(category: type[Warning]) -> bool:
    """Whether the first filter for a category raises its warnings."""
    actions = (action for action, _, cls, *_ in warnings.filters if issubclass(category, cls))
    return next(actions, None) == "error"


def _lists_its_names(cls: type) -> bool:
    """Whether a class has a __dir__() in Python, whose code is observed."""
    return type(inspect.getattr_static(cls, "__dir__", None)) is types.FunctionType


def has_rates_of_optimizer(scheduler: Any) -> bool:
    return bool(scheduler._last_lr == [group["lr"] for group in scheduler.optimizer.param_groups])


def context_variables() -> tuple[Any, ...]:
    return tuple(contextvars.copy_context().items())


def active_function_modes() -> tuple[TorchFunctionMode, ...]:
    """Return the modes that the caller has entered.

    Those of torch and of a capture are left out: torch keeps the default device as a mode.
    """
    modes = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
    return tuple(m for m in modes if type(m).__module__.partition(".")[0] not in ("torch", "oneflow"))


class AnswerReads:
    """The part of Reads that guards what functions answer whose own reads are not observed."""

    notes: Notes
    writes: WriteNotes
    contents: Callable[..., Any]
    imported_module: Callable[..., Any]
    class_attribute: Callable[..., Any]
    python_call: Callable[..., Any]
    argument_contents: Callable[..., Any]

    def foreign_call(self, function: Any, owner: Any, arguments: Sequence[Any], site: Site) -> None:
        """A call of a Python function whose frames are not observed."""
        if function.__module__ == "logging" and function.__name__ in _LOGGING_CALLS:
            return
        what = unfollowed_function(function)
        # pathlib asks os.path from Python 3.14 on
        if what is not None and (site.is_user or is_of_standard_library(site.code.co_filename)):
            self.notes.warn(site, what)
        if self.changed_owner(function, owner, site):
            return
        if function in _IMPORTERS and arguments and type(arguments[0]) is str:
            self.imported_module({}, arguments[0], 0, site)
            if function is importlib.util.find_spec and arguments[0] not in sys.modules:
                self.notes.warn(site, FILE)
            return
        self.getter(function if owner is None else types.MethodType(function, owner), arguments, site)
        self.argument_contents((owner, *arguments), site)
        if site.is_user:
            self.inspected(arguments, site)
            self.entries_of_classes((owner,), site)
            if function.__module__ == "inspect":
                self.names_and_entries(arguments, site)

    def changed_owner(self, function: Any, owner: Any, site: Site) -> bool:
        """Remember what a method may change of its object; return True if it reads nothing besides."""
        if function in _REMOVERS and is_a(owner, RemovableHandle):
            for hooks in filter(None, (ref() for ref in (owner.hooks_dict_ref, *owner.extra_dict_ref))):
                self.writes.store_item(hooks, owner.id, site)
            return True
        if is_a(owner, (dict, *WEAK_CONTAINERS)):
            self.writes.before_write(owner, site)  # such as WeakSet.add
        return False

    def entries_of_classes(self, instances: Sequence[Any], site: Site) -> None:
        """Guard all that user's classes define, for a function that may read any attribute.

        Such a function is inherited from a class whose code is not observed (autograd.Function.apply), or it
        lists attributes (inspect.getmembers).
        """
        for instance in instances:
            cls = instance if is_a(instance, type) else type(instance)
            for base in filter(is_python_class, cls.__mro__):
                if policy_of_module(base.__module__) is Policy.USER:
                    for name, entry in tuple(vars(base).items()):
                        self.class_attribute(base, (base,), name, site)
                        function = getattr(entry, "__func__", entry)  # of a staticmethod
                        if type(function) is types.FunctionType:
                            self.python_call(function, site)

    def names_and_entries(self, instances: Sequence[Any], site: Site) -> None:
        for instance in instances:
            if is_python_class(instance if is_a(instance, type) else type(instance)):
                self.answer(dir, (instance,), f"dir({type(instance).__name__})", site)
                self.entries_of_classes((instance,), site)

    def inspected(self, arguments: Sequence[Any], site: Site) -> None:
        """What inspect and typing read of functions and classes: defaults, and annotations."""
        for argument in arguments:
            if type(argument) is types.FunctionType:
                self.python_call(argument, site)
                self.contents(vars(argument), site)
                annotations = argument.__annotations__
                self.notes.add(Attribute("__annotations__"), argument, annotations, None, site)
                self.contents(annotations, site)
            elif isinstance(argument, type) and is_python_class(argument):
                for base in filter(is_python_class, argument.__mro__):
                    self.contents(vars(base).get("__annotations__"), site)

    def getter(self, function: Any, arguments: Sequence[Any], site: Site) -> None:
        """Guard the answer of a function that tells a setting."""
        of_tensor = isinstance(getattr(function, "__self__", None), FREE_BASES)
        if site.is_user and not of_tensor and is_getter(function, arguments):
            self.answer(function, tuple(arguments), f"{function.__name__}()", site)

    def function_modes(self, modes: tuple[TorchFunctionMode, ...], site: Site | None) -> None:
        """Guard which modes change what functions of torch do. One with equal attributes may replace them."""
        if modes:
            label = "the active torch function modes"
            self.notes.add(Answer((None, ())), active_function_modes, modes, label, site)
        for mode in modes:
            self.notes.add(TYPE, mode, type(mode), f"the class of {type(mode).__name__}", site)

    def warning(self, arguments: Sequence[Any], site: Site) -> None:
        """Guard whether warnings.warn(message, category) raises."""
        message, category = (*arguments, None, None)[:2]
        category = type(message) if is_a(message, Warning) else category or UserWarning
        if isinstance(category, type) and issubclass(category, Warning):
            self.answer(is_warning_an_error, (category,), "the filters of warnings", site)

    def answer(self, function: Any, arguments: tuple[Any, ...], label: str, site: Site | None) -> None:
        owner = getattr(function, "__self__", None)  # a bound method is another object each time
        owner, method = (function, None) if owner is None else (owner, function.__name__)
        self.notes.add(Answer((method, arguments)), owner, OF_CAPTURE, label, site)

    def text_of_arrays(self, arguments: Sequence[Any], site: Site) -> None:
        if any(is_a(argument, np.ndarray) for argument in arguments):
            self.answer(np.get_printoptions, (), "np.get_printoptions()", site)

    def inspection(self, function: object, arguments: Sequence[Any], site: Site) -> None:
        """A call of type(), dir(), isinstance() or issubclass()."""
        subject = arguments[0]
        if function in (isinstance, issubclass):
            self.class_check(function, arguments)
        elif function is type and len(arguments) == 1 and is_python_class(type(subject)):
            self.notes.add(TYPE, subject, type(subject), f"the class of {type(subject).__name__}", site)
        elif function is dir and attributes_of(subject) is not None and not _lists_its_names(type(subject)):
            self.answer(dir, (subject,), f"dir({type(subject).__name__})", site)

    def class_check(self, function: object, arguments: Sequence[Any]) -> None:
        """Guard which abstract classes a class is registered with."""
        subject, classes = arguments if len(arguments) == 2 else (None, ())
        cls: Any = type(subject) if function is isinstance else subject
        for base in abstract_classes(classes) if isinstance(cls, type) else ():
            for name in getattr(typing, "_get_protocol_attrs", _no_names)(base) if _is_protocol(base) else ():
                self.class_attribute(cls, cls.__mro__, name, None)
            self.answer(issubclass, (cls, base), f"issubclass({cls.__name__}, {base.__name__})", None)
