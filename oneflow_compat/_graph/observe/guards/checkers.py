"""The test before each call that no guarded source was written, in C by versions or in Python by identity."""

from __future__ import annotations

import functools
import inspect
import sysconfig
import types
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._dynamo import guards as guards_of_torch

from ...program.python_values import MISSING
from .layouts import code_offset, layout_check, layout_offsets
from .sources import (
    ANSWER,
    ATTRIBUTES,
    CONTAINS,
    CONTENTS,
    FUNCTION,
    KEYS,
    LAYOUT,
    SIZE,
    SPECIAL_METHODS,
    STATE,
    TYPE,
    contents,
    is_same_picture,
)

try:
    from .. import _guards  # type: ignore[attr-defined]  # csrc/guards.cpp
except ImportError:  # not built: there was no compiler
    _guards = None

_INTERFACE = 5  # kInterface of csrc/guards.cpp
# The operations of csrc/guards.cpp, in its order.
(
    _ENTRIES, _PICTURE, _TYPE, _CELL, _LIST, _CLASS, _ATTRIBUTE, _ELEMENT, _FLAGS, _CALL, _LAYOUTS,
    _FUNCTION, _OBJECT, _ANSWER,
) = range(14)  # fmt: skip
_PRESENT = object()  # any value


class PythonChecker:
    """One generated function that compares every guarded source by identity."""

    def __init__(self, groups: Any) -> None:
        self.groups = groups
        self.scope: dict[str, Any] = {"MISSING": MISSING, "contents": contents, "same": is_same_picture}
        lines = []
        for index, group in enumerate(groups):
            self.scope[f"o{index}"] = group.owner
            if group.test in _AT_ONCE:
                self.scope[f"hold{index}"] = _AT_ONCE[group.test](group.guards)
                lines.append(f"    if {index} >= start and not hold{index}(): return {index}\n")
                continue
            tests = [self._test(f"{index}_{n}", f"o{index}", guard) for n, guard in enumerate(group.guards)]
            lines.append(f"    if {index} >= start and not ({' and '.join(tests)}): return {index}\n")
        code = f"def first_change_from(start):\n  try:\n{''.join(lines) or '    pass'}\n"
        code += "  except (KeyError, IndexError, ValueError, AttributeError):\n    return slow(start)\n"
        self.scope["slow"] = self._slow
        exec(compile(code, "<guards>", "exec"), self.scope)
        self._from: Callable[[int], int | None] = self.scope["first_change_from"]

    def first_change(self) -> int | None:
        """Return the index of the first group with a source that holds another object, or None."""
        return self._from(0)

    def first_change_after(self, index: Any) -> int | None:
        return self._from(index + 1)

    def update(self, index: Any) -> None:
        """Take the owner and the values of the guards of a group for those to expect."""
        group = self.groups[index]
        self.scope[f"o{index}"] = group.owner
        if group.test in _AT_ONCE:
            self.scope[f"hold{index}"] = _AT_ONCE[group.test](group.guards)
        for n, guard in enumerate(group.guards):
            self.scope[f"v{index}_{n}"] = guard.value

    def _test(self, name: str, owner: Any, guard: Any) -> str:
        scope, key, value = self.scope, repr(guard.key), guard.value
        if type(guard.key) not in (str, int):
            key = f"k{name}"
            scope[key] = guard.key
        scope[f"v{name}"] = value
        if guard.access in ("item", "mode"):
            return f"{key} not in {owner}" if value is MISSING else f"{owner}[{key}] is v{name}"
        if guard.access == "contains":
            return f"({key} in {owner}) is v{name}"
        if guard.access == SIZE:
            return f"len({owner}) == v{name}"
        if guard.access == "element":
            return f"{owner}[{key}] is v{name}"
        if guard.access == "cell":
            return f"{owner}.cell_contents is v{name}"
        if guard.access == "type":
            return f"{owner}.__class__ is v{name}"
        if guard.access == CONTENTS:
            return f"same(contents({owner}), v{name})"
        scope[f"g{name}"] = guard
        if guard.access == LAYOUT or guard.access == ANSWER and type(value) is str:
            return f"g{name}.current() == v{name}"
        if guard.access in (SPECIAL_METHODS, FUNCTION, KEYS):
            return f"same(g{name}.current(), v{name})"
        return f"g{name}.current() is v{name}"

    def _slow(self, start: Any) -> Any:
        """A source that vanished raised an error in the generated function."""
        for index, group in enumerate(self.groups):
            if index >= start and any(differs(guard) for guard in group.guards):
                return index
        return None


def differs(guard: Any) -> bool:
    """Whether the source of a guard holds another value, or another object of the same value."""
    current = guard.current()
    if guard.access in (CONTENTS, SPECIAL_METHODS, FUNCTION, KEYS):
        return not is_same_picture(current, guard.value)
    if guard.access == "contains":
        return current is not bool(guard.value)
    if guard.access in (LAYOUT, SIZE) or guard.access == ANSWER and type(current) is type(guard.value) is str:
        return bool(current != guard.value)
    return current is not guard.value


class CompiledChecker:
    """The loop of csrc/guards.cpp: versions of dicts and classes, identities of the rest."""

    def __init__(self, groups: Any, features: Any) -> None:
        self.groups, self.features = groups, features
        self.tests = [self._test(group) for group in groups]  # the loop borrows references from these
        self.first_change, self.first_change_after, self._update = _guards.build(
            self.tests, features.dict_versions, features.code, MISSING, _PRESENT
        )

    def update(self, index: Any) -> None:
        """Take the owner and the values of the guards of a group for those to expect."""
        test = self._test(self.groups[index])
        self._update(index, test)
        self.tests[index] = test

    def _test(self, group: Any) -> Any:
        """Return (operation, owner, expected)."""
        native = _NATIVE_TESTS.get(group.test)
        test = None if native is None else native(group, self.features)
        if test is not None:
            return test
        guards = tuple(group.guards)
        return _CALL, group.owner, lambda: not any(map(differs, guards))


def _layout_test(guards: Any) -> Callable[[], bool]:
    tensors = [*{id(guard.owner): guard.owner for guard in guards}.values()]
    check, addresses = layout_check(tensors), [*map(torch.Tensor.data_ptr, tensors)]
    return lambda: check(*tensors) and [*map(torch.Tensor.data_ptr, tensors)] == addresses


def _state_test(guards: Any) -> Callable[[], bool]:
    """Return torch's own test of its state. It compares more: False means that the answers may differ."""
    guard_class = getattr(guards_of_torch, "GlobalStateGuard", None)
    if guard_class is None:  # this torch has no such test
        return lambda: not any(map(differs, guards))
    check: Callable[[], bool] = guard_class().check
    return check if not any(map(differs, guards)) else lambda: False


# Tests of all guards of a group in one call.
_AT_ONCE: dict[str, Callable[[Any], Callable[[], bool]]] = {LAYOUT: _layout_test, STATE: _state_test}


def _has_plain_attributes(owner: Any) -> bool:
    """Whether getattr() on the object runs no Python: a function, a plain class, or an object with slots."""
    readers: tuple[Any, ...] = object.__getattribute__, types.FunctionType.__getattribute__
    return type(owner) is type or type(owner).__getattribute__ in readers


# -- tests that csrc/guards.cpp runs without a call of Python: (operation, owner, expected), or None ---------


def _dict_test(group: Any, features: Features) -> tuple[Any, ...]:
    pictures = [guard.value for guard in group.guards if guard.access == CONTENTS]
    if pictures:
        return _PICTURE, group.owner, pictures[0]
    expected: dict[Any, Any] = {}
    sizes = tuple(guard.value for guard in group.guards if guard.access == SIZE)[:1]
    for guard in group.guards:
        value = guard.value
        if guard.access == SIZE:
            continue
        if guard.access == CONTAINS:
            expected.setdefault(guard.key, _PRESENT if value else MISSING)
        else:
            expected[guard.key] = value
    entries = (part for entry in expected.items() for part in entry)
    return _ENTRIES, group.owner, (*entries, *sizes)


def _class_test(group: Any, features: Features) -> tuple[Any, ...] | None:
    return (_CLASS, group.owner, None) if features.class_versions else None


def _cell_test(group: Any, features: Features) -> tuple[Any, ...]:
    return _CELL, group.owner, group.guards[0].value


def _list_test(group: Any, features: Features) -> tuple[Any, ...]:
    return _LIST, group.owner, group.guards[0].value


def _attribute_test(group: Any, features: Features) -> tuple[Any, ...] | None:
    guard = group.guards[0]
    if not _has_plain_attributes(group.owner):
        return None
    return _ATTRIBUTE, group.owner, (guard.key, guard.value)


def _flag_test(group: Any, features: Features) -> tuple[Any, ...]:
    owner, guard = group.owner, group.guards[0]
    return _FLAGS, owner, (inspect.getattr_static(type(owner[0]), guard.key), guard.value)


def _element_test(group: Any, features: Features) -> tuple[Any, ...] | None:
    guard = group.guards[0]
    return (_ELEMENT, group.owner, (guard.key, guard.value)) if type(group.owner) is list else None


def _layouts_test(group: Any, features: Features) -> tuple[Any, ...]:
    if features.layouts is None:
        return _CALL, group.owner, _layout_test(group.guards)
    tensors = tuple(guard.owner for guard in group.guards)
    return _LAYOUTS, tensors, (torch.Tensor.requires_grad, *features.layouts)


def _function_test(group: Any, features: Features) -> tuple[Any, ...] | None:
    if not features.functions:
        return None
    return _FUNCTION, group.owner, tuple(MISSING if p is None else p for p in group.guards[0].value)


def _object_test(group: Any, features: Features) -> tuple[Any, ...] | None:
    values = {guard.access: guard.value for guard in group.guards}
    if len(group.guards) == 1 and TYPE in values:
        return _TYPE, group.owner, values[TYPE]
    if not features.objects:
        return None
    return _OBJECT, group.owner, (values.get(TYPE, MISSING), values.get(ATTRIBUTES, MISSING))


def _answer_test(group: Any, features: Features) -> tuple[Any, ...] | None:
    guard = group.guards[0]
    method, arguments = guard.key
    if method is not None or guard.value is MISSING:
        return None
    return _ANSWER, group.owner, (tuple(arguments), guard.value)


def _global_state_test(group: Any, features: Features) -> tuple[Any, ...]:
    return _ANSWER, _state_test(group.guards), ((), True)


_NATIVE_TESTS: dict[str, Callable[[Any, Features], tuple[Any, ...] | None]] = {  # by Group.test
    "dict": _dict_test,
    "class": _class_test,
    "cell": _cell_test,
    "list": _list_test,
    "attribute": _attribute_test,
    "flag": _flag_test,
    "element": _element_test,
    LAYOUT: _layouts_test,
    FUNCTION: _function_test,
    "object": _object_test,
    ANSWER: _answer_test,
    STATE: _global_state_test,
}


@dataclass(frozen=True)
class Features:
    """Which fields of Python's objects tell of every write. Others are replaced by comparisons."""

    dict_versions: bool
    class_versions: bool
    layouts: tuple[int, int, int] | None
    functions: bool
    objects: bool
    code: int  # offset of the code in a function, or -1


class _Probe:
    value = 0


@functools.lru_cache(None)
def probed_features() -> Features | None:
    """Return what the compiled loop can rely on in this Python, or None if it cannot be used."""
    if _guards is None or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    if getattr(_guards, "INTERFACE", None) != _INTERFACE:
        warnings.warn(
            "the compiled guards of nn.Graph belong to another version of this package, so a slower check in"
            " Python is used; install the package again, or run `python csrc/build.py` in its repository",
            stacklevel=2,
        )
        return None
    instance, plain = _Probe(), {"value": 0}
    attributes = vars(instance)

    def store_attribute(value: Any) -> None:
        instance.value = value

    def store_item(value: Any) -> None:
        plain["value"] = value

    cell = types.CellType(0)

    def store_cell(value: Any) -> None:
        cell.cell_contents = value

    values = [0]

    def store_element(value: Any) -> None:
        values[0] = value

    works = _sees(_CELL, cell, lambda: cell.cell_contents, store_cell)
    works = works and _sees(_LIST, values, lambda: tuple(values), store_element)
    if not works:
        return None
    dicts = all(
        _sees(_PICTURE, owner, lambda owner=owner: (*owner, *owner.values()), store, versions=True)
        for owner, store in ((plain, store_item), (attributes, store_attribute))
    )
    classes = _sees(_CLASS, _Probe, lambda: None, lambda value: setattr(_Probe, "value", value))
    # Modes and transforms of the caller, such as vmap, belong to his thread, and would see the probes.
    with ThreadPoolExecutor(1) as other_thread:
        layouts = other_thread.submit(_probed_layouts).result()
    return Features(dicts, classes, layouts, *_probed_parts(instance), code_offset())


def _probed_parts(instance: Any) -> tuple[bool, bool]:
    """Whether the loop sees changes of the parts of functions, and of the dict and the class of an object."""

    def function(value: Any = 0, *, named: Any = 0) -> None:
        pass

    def store_defaults(value: Any) -> None:
        function.__defaults__ = (value,)

    def store_keywords(value: Any) -> None:
        function.__kwdefaults__ = {"named": value}

    def store_attributes(value: Any) -> None:
        instance.__dict__ = {"value": value}

    def parts() -> tuple[Any, ...]:
        return function.__code__, function.__defaults__, function.__kwdefaults__

    try:
        functions = all(
            _sees(_FUNCTION, function, parts, store) for store in (store_defaults, store_keywords)
        )
        objects = _sees(_OBJECT, instance, lambda: (_Probe, vars(instance)), store_attributes)
    except TypeError:  # a library that was built before it had these tests
        return False, False
    return functions, objects


def _probed_layouts() -> tuple[int, int, int] | None:
    """Return the offsets at which the loop compares layouts, if it sees each change of them."""
    offsets = layout_offsets()
    changes = (
        lambda t: t.resize_(2, 2),
        lambda t: t.resize_(6),
        lambda t: t.t_(),
        lambda t: t.requires_grad_(),
        lambda t: setattr(t, "data", torch.zeros(3, 2)),
        lambda t: setattr(t, "data", t.data.to(torch.int32)),
        lambda t: t.set_(t.untyped_storage(), 1, (1, 2), (2, 1)),
    )
    return offsets if offsets is not None and all(_sees_layout(c, offsets) for c in changes) else None


def _sees_layout(change: Callable[[Any], object], offsets: tuple[int, int, int]) -> bool:
    tensor = torch.zeros(3, 2)
    test = (_LAYOUTS, (tensor,), (torch.Tensor.requires_grad, *offsets))
    first_change, *_ = _guards.build([test], False, -1, MISSING, _PRESENT)
    tensor.add_(1)
    if first_change() is not None:
        return False
    change(tensor)
    return first_change() is not None


def _sees(operation: Any, owner: Any, expected: Any, store: Any, versions: bool = False) -> bool:
    """Whether a test notices each of many writes, which the interpreter specializes after a while."""
    for count in range(64):
        store(object())
        tests = [(operation, owner, expected())]
        first_change, *_ = _guards.build(tests, versions, code_offset(), MISSING, _PRESENT)
        if first_change() is not None:
            return False
        store(object())
        if first_change() is None:
            return False
    return True


def library() -> Any:
    """Return the compiled library. Ask probed_features() before whether it can be used."""
    return _guards


def new_checker(groups: Any) -> Any:
    """Return a checker of the groups: compiled if the library was built."""
    features = probed_features()
    return PythonChecker(groups) if features is None else CompiledChecker(groups, features)
