"""The fallback where frames cannot be observed: some reads, by patched classes and the names in code.

While build() runs, reads of attributes of modules and of the graph are noted, and the free names of the
user's functions. Lists and dicts of plain values are compared as a whole, arrays by their elements, and
records (objects of a class without methods) by the attributes read. Other reads are not guarded.
"""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import skipped
from ..program.python_values import (
    BY_IDENTITY,
    MAX_ELEMENTS,
    MISSING,
    Cell,
    Elements,
    Length,
    array_contents,
    get_item,
    is_dict,
    is_plain,
    is_plain_container,
    is_record,
    same_value,
)
from .guards.outliving import MadeByBuild
from .guards.python_guards import PythonGuards
from .guards.sources import CELL, CONTENTS, ELEMENT, ITEM, Guard, contents

if TYPE_CHECKING:
    from torch.nn import Module


DEPTH = 4  # of lists and dicts in each other: what lies deeper is not compared
_ELEMENTS = 4096  # of an array whose values are compared at each call
_CAPTURE = __package__.rpartition(".")[0] + ".capture"
_UNREAD = frozenset(vars(torch.nn.Module()))


class AttributeReads:
    """A context: notes what build() reads. `owner` is the object build() belongs to, or None."""

    def __init__(
        self,
        build: Callable[..., Any],
        owner: Any,
        active: Callable[..., Any],
        on_module: Callable[[Module], None],
    ) -> None:
        self.build, self.owner, self.active, self.on_module = build, owner, active, on_module
        # (id(container), key) -> (container, key, value at the first read, label, by whom it may be changed)
        self.entries: dict[Any, Any] = {}
        self.modules: dict[Any, Any] = {}
        self.made: dict[Any, Any] = {}
        self.functions: dict[Any, Any] = {}
        self.classes: set[Any] = set()

    # -- attributes ------------------------------------------------------------------
    def __enter__(self) -> Any:
        self.stack, self.made_by_build = contextlib.ExitStack(), MadeByBuild()
        self.stack.enter_context(self.made_by_build)
        classes = {torch.nn.Module}
        if self.owner is not None:
            classes.add(type(self.owner))
        for cls in classes:
            self._reading(cls)
        if self.owner is not None:
            self._function(getattr(type(self.owner), "build", None))
        self._function(self.build)
        return self

    def __exit__(self, *exc: Any) -> Any:
        return self.stack.__exit__(*exc)

    def note_twins(self, twins: dict[int, Any]) -> None:
        """Do nothing: comparisons are not observed here."""

    def ids_made_by_build(self) -> set[int]:
        """Return the ids of the objects that build() made."""
        return self.made_by_build.ids({})

    def _reading(self, cls: Any) -> None:
        """Attributes of the objects of a class are noted from here on."""
        if cls not in self.classes:
            self.classes.add(cls)
            self.stack.enter_context(self._patched(cls))

    @contextlib.contextmanager
    def _patched(self, cls: Any) -> Iterator[None]:
        own = cls.__dict__.get("__getattribute__")
        get = cls.__getattribute__
        seen, active, note, absent = set(), self.active, self._note, self._absent

        def __getattribute__(self: Any, name: str) -> Any:
            try:
                value = get(self, name)
            except AttributeError:
                if not name.startswith("__") and (id(self), name) not in seen and active():
                    seen.add((id(self), name))
                    absent(self, name)
                raise
            key = (id(self), name)
            if key not in seen and active():
                seen.add(key)
                note(self, name, value)
            return value

        cls.__getattribute__ = __getattribute__
        try:
            yield
        finally:
            if own is None:
                del cls.__getattribute__
            else:
                cls.__getattribute__ = own

    def _note(self, instance: Any, name: str, value: Any) -> None:
        attributes = object.__getattribute__(instance, "__dict__")
        if isinstance(instance, torch.nn.Module):
            if id(instance) in self.made or not self._known(instance, attributes):
                return
        elif name.startswith("_"):
            return
        if name in attributes:
            if name not in _UNREAD:
                self._value(attributes, name, value, f"{type(instance).__name__}.{name}", True)
        elif isinstance(value, types.MethodType) and not name.startswith("_"):
            self._function(value.__func__)
        elif is_plain(value):  # of the class, or computed: until the object has its own
            self.entries.setdefault(
                (id(attributes), name), (attributes, name, MISSING, f"{type(instance).__name__}.{name}", True)
            )

    def _known(self, module: Any, attributes: Any) -> bool:
        """False for a module that build() itself is making."""
        if id(module) not in self.modules:
            if "_modules" not in attributes:
                self.made[id(module)] = module
                return False
            self.modules[id(module)] = module
            self.on_module(module)
        return True

    def _absent(self, instance: Any, name: str) -> None:
        """An attribute that build() looked for and did not find."""
        attributes = object.__getattribute__(instance, "__dict__")
        if (
            id(instance) in self.made
            or isinstance(instance, torch.nn.Module)
            and not self._known(instance, attributes)
        ):
            return
        if not any(
            name in attributes.get(registry, ())
            for registry in ("_parameters", "_buffers", "_modules", "_blocks")
        ):
            self.entries.setdefault(
                (id(attributes), name), (attributes, name, MISSING, f"{type(instance).__name__}.{name}", True)
            )

    def _value(
        self, container: Any, key: Any, value: Any, label: str | None, attribute: Any, depth: int = 0
    ) -> None:
        """Note a value, and what is compared of it."""
        if getattr(value, "__module__", None) == f"{_CAPTURE}.patches.checkpointing":
            return  # forward of a recomputed module
        entry = (container, key, value, label, attribute)
        if isinstance(value, (*BY_IDENTITY, torch.Tensor)) or is_plain(value):
            self._note_entry(entry)
            if isinstance(value, types.FunctionType):
                self._function(value)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            if value.size <= _ELEMENTS:
                entry = (Elements(container, key), np.ndarray, array_contents(value), label, False)
            self.entries.setdefault((id(container), key), entry)
        elif is_plain_container(value):
            self._note_entry((container, key, copy.copy(value), label, attribute))
        elif is_record(type(value)):
            self._note_entry(entry)
            self._reading(type(value))
        elif depth < DEPTH:
            self._nested_values(entry, depth)

    def _note_entry(self, entry: Any) -> None:
        container, key, *_ = entry
        self.entries.setdefault((id(container), key), entry)

    def _nested_values(self, entry: Any, depth: int) -> None:
        """Note the elements of a list or dict, or the attributes of a namespace or dataclass."""
        _, _, value, label, attribute = entry
        if (type(value) is list or is_dict(value)) and len(value) <= MAX_ELEMENTS:
            self._note_entry(entry)
            length = (Length(value), len, len(value), f"len({label})", False)
            self.entries.setdefault((id(value), len), length)
            for k, v in value.items() if is_dict(value) else enumerate(value):
                self._value(value, k, v, f"{label}[{k!r}]", attribute, depth + 1)
        elif _has_fields(value):
            self._note_entry(entry)
            for k, v in list(vars(value).items())[:MAX_ELEMENTS]:
                self._value(vars(value), k, v, f"{label}.{k}", attribute, depth + 1)

    # -- names of functions --------------------------------------------------------------
    def _function(self, function: Any) -> None:
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        if isinstance(function, types.MethodType):
            function = function.__func__
        if not isinstance(function, types.FunctionType):
            return
        code = function.__code__
        if code in self.functions or skipped(code.co_filename) or len(self.functions) > 200:
            return
        self.functions[code] = function
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            self._value(Cell(cell), "value", value, name, False)
        scope = function.__globals__
        for name in _names(code):
            value = scope.get(name, MISSING)
            if value is not MISSING and not isinstance(
                value, (type, types.ModuleType, types.BuiltinFunctionType)
            ):
                self._value(scope, name, value, name, False)

    def note_arguments(self, arguments: Any) -> Any:
        """Questions about arguments are not observed here."""
        return ()

    def is_text_for_output(self, frame: Any) -> bool:
        return True

    def warn_of_text(self) -> None:
        """The text of a tensor is not observed here."""

    # -- the result ----------------------------------------------------------------------
    def finish(self, replayed: Any, modes: Any) -> Any:
        """The guards of later calls, once build() has returned."""
        return PythonGuards([guard for entry in list(self._entries()) for guard in _guards_of(*entry)])

    def _entries(self) -> Iterator[Any]:
        """Yield (container, key, value, label) of what later calls compare."""
        for container, key, value, label, attribute in self.entries.values():
            if isinstance(value, FakeTensor):
                continue
            # what build() itself changes in an attribute changes at captures only
            is_own_change = attribute and not isinstance(value, (list, dict))
            if is_own_change or _is_unchanged(get_item(container, key), value):
                yield container, key, value, label
        for module in self.modules.values():
            yield from _registry_entries(module)


def _is_unchanged(now: Any, value: Any) -> bool:
    return now is value or isinstance(now, type(value)) and same_value(now, value)


def _registry_entries(module: Any) -> Iterator[Any]:
    """Yield the entries for the number of child modules, and for empty parameters and buffers."""
    name = type(module).__name__
    children = module.__dict__.get("_modules")
    if children:
        yield Length(children), len, len(children), f"len({name})"
    for registry in ("_modules", "_parameters", "_buffers"):
        container = module.__dict__.get(registry) or {}
        for key, value in container.items():
            if value is None or registry == "_modules":
                yield container, key, value, f"{name}.{key}"


def _has_fields(value: Any) -> bool:
    """Whether the value is a namespace or a dataclass with attributes."""
    is_namespace = isinstance(value, types.SimpleNamespace) or hasattr(type(value), "__dataclass_fields__")
    return is_namespace and hasattr(value, "__dict__")


def _names(code: Any, depth: Any = 0) -> Any:
    """Return the names that a function's code may look up among its globals."""
    yield from code.co_names
    if depth < 3:
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                yield from _names(const, depth + 1)


def _guards_of(container: Any, key: Any, value: Any, label: str | None) -> Iterator[Any]:
    """Return the guards of an entry."""
    if isinstance(container, Cell):
        yield Guard(CELL, container.cell, None, value, label, None)
    elif isinstance(container, Length):
        yield Guard(CONTENTS, container.of, None, contents(container.of), label, None)
    elif isinstance(container, Elements):
        value = container.container[container.key]
        yield from _guards_of(container.container, container.key, value, label)
        yield Guard(CONTENTS, value, None, contents(value), label, None)
    elif type(container) is list:
        yield Guard(ELEMENT, container, key, value, label, None)
    else:
        yield Guard(ITEM, container, key, value, label, None)
    if type(value) in (list, dict) and is_plain_container(value):
        current = get_item(container, key)
        yield Guard(CONTENTS, current, None, contents(current), label, None)
