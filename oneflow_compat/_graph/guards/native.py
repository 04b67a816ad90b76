"""The compiled loop of csrc/guards.cpp, and what it can rely on in this Python."""

from __future__ import annotations

import functools
import sysconfig
import types
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch

from ..program.python_values import MISSING
from .layouts import code_offset, layout_offsets

try:
    from . import _guards  # type: ignore[attr-defined]  # csrc/guards.cpp
except ImportError:  # not built: there was no compiler
    _guards = None

_INTERFACE = 5  # kInterface of csrc/guards.cpp
PRESENT = object()  # any value


# The tests of csrc/guards/tests.h, in its order.
Operation = IntEnum(
    "Operation",
    "ENTRIES PICTURE TYPE CELL LIST CLASS ATTRIBUTE ELEMENT FLAGS CALL LAYOUTS FUNCTION OBJECT ANSWER",
    start=0,
)
NativeTest = tuple[Operation, Any, Any]  # (operation, owner, expected)


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

    def store_cell(value: object) -> None:
        cell.cell_contents = value

    values = [0]

    def store_element(value: Any) -> None:
        values[0] = value

    works = _sees(Operation.CELL, cell, lambda: cell.cell_contents, store_cell)
    works = works and _sees(Operation.LIST, values, lambda: tuple(values), store_element)
    if not works:
        return None
    dicts = all(
        _sees(Operation.PICTURE, owner, lambda owner=owner: (*owner, *owner.values()), store, versions=True)
        for owner, store in ((plain, store_item), (attributes, store_attribute))
    )
    classes = _sees(Operation.CLASS, _Probe, lambda: None, lambda value: setattr(_Probe, "value", value))
    # Modes and transforms of the caller, such as vmap, belong to his thread, and would see the probes.
    with ThreadPoolExecutor(1) as other_thread:
        layouts = other_thread.submit(_probed_layouts).result()
    return Features(dicts, classes, layouts, *_probed_parts(instance), code_offset())


def _probed_parts(instance: object) -> tuple[bool, bool]:
    """Whether the loop sees changes of the parts of functions, and of the dict and the class of an object."""

    def function(value: object = 0, *, named: object = 0) -> None:
        pass

    def store_defaults(value: object) -> None:
        function.__defaults__ = (value,)

    def store_keywords(value: object) -> None:
        function.__kwdefaults__ = {"named": value}

    def store_attributes(value: object) -> None:
        instance.__dict__ = {"value": value}

    def parts() -> tuple[Any, ...]:
        return function.__code__, function.__defaults__, function.__kwdefaults__

    try:
        functions = all(
            _sees(Operation.FUNCTION, function, parts, store) for store in (store_defaults, store_keywords)
        )
        objects = _sees(Operation.OBJECT, instance, lambda: (_Probe, vars(instance)), store_attributes)
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
    test = (Operation.LAYOUTS, (tensor,), (torch.Tensor.requires_grad, *offsets))
    first_change, *_ = _guards.build([test], False, -1, MISSING, PRESENT)
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
        first_change, *_ = _guards.build(tests, versions, code_offset(), MISSING, PRESENT)
        if first_change() is not None:
            return False
        store(object())
        if first_change() is None:
            return False
    return True


def library() -> Any:
    """Return the compiled library. Ask probed_features() before whether it can be used."""
    return _guards
