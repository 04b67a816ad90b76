"""The hooks of foreign code: Python functions whose own reads are not observed, such as those of inspect.

Such a function is guarded by what it may read: its arguments, the classes of the user's among them, and the
setting that it tells.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.hooks import RemovableHandle

from ...code_origins import is_of_standard_library
from ...guards.sources import Attribute
from ...guards.values import WEAK_CONTAINERS, is_a
from ...program.python_values import is_python_class
from ..instrumentation.policy import Policy, policy_of_module
from .unfollowed import FILE, unfollowed_function

if TYPE_CHECKING:
    from ..instrumentation.instrument import Site
    from .answers import AnswerReads
    from .class_reads import ClassReads
    from .name_reads import NameReads
    from .notes import Notes
    from .value_reads import ValueReads
    from .write_notes import WriteNotes

_IMPORTERS = frozenset([importlib.import_module, importlib.util.find_spec])
_REMOVERS = frozenset([RemovableHandle.remove, RemovableHandle.__exit__])
# They return nothing, and a logger remembers its answers: no result depends on either.
_LOGGING_CALLS = frozenset(["debug", "info", "warning", "error", "exception", "critical", "log"])


class ForeignReads:
    """Guards what Python code reads that is not observed."""

    def __init__(
        self,
        notes: Notes,
        writes: WriteNotes,
        names: NameReads,
        answers: AnswerReads,
        classes: ClassReads,
        values: ValueReads,
    ) -> None:
        self.notes, self.writes, self.names = notes, writes, names
        self.answers, self.classes, self.values = answers, classes, values

    def call(self, function: Any, owner: Any, arguments: Sequence[Any], site: Site) -> None:
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
            self.names.imported_module({}, arguments[0], 0, site)
            if function is importlib.util.find_spec and arguments[0] not in sys.modules:
                self.notes.warn(site, FILE)
            return
        self.answers.getter(function if owner is None else types.MethodType(function, owner), arguments, site)
        self.values.argument_contents((owner, *arguments), site)
        if site.is_user:
            self.inspected(arguments, site)
            self.entries_of_classes((owner,), site)
            if function.__module__ == "inspect":
                self.names_and_entries(arguments, site)

    def changed_owner(self, function: object, owner: Any, site: Site) -> bool:
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
                        self.classes.class_attribute(base, (base,), name, site)
                        function = getattr(entry, "__func__", entry)  # of a staticmethod
                        if type(function) is types.FunctionType:
                            self.values.python_call(function, site)

    def names_and_entries(self, instances: Sequence[Any], site: Site) -> None:
        for instance in instances:
            if is_python_class(instance if is_a(instance, type) else type(instance)):
                self.answers.answer(dir, (instance,), f"dir({type(instance).__name__})", site)
                self.entries_of_classes((instance,), site)

    def inspected(self, arguments: Sequence[Any], site: Site) -> None:
        """Guard what inspect and typing read of functions and classes: defaults, and annotations."""
        for argument in arguments:
            if type(argument) is types.FunctionType:
                self.values.python_call(argument, site)
                self.values.contents(vars(argument), site)
                annotations = argument.__annotations__
                self.notes.add(Attribute("__annotations__"), argument, annotations, None, site)
                self.values.contents(annotations, site)
            elif isinstance(argument, type) and is_python_class(argument):
                for base in filter(is_python_class, argument.__mro__):
                    self.values.contents(vars(base).get("__annotations__"), site)
