"""The functions that instrumented code calls before each read. They hand what they get to the current Reads.

`current.reads` is None while no build() is observed. `current.seen` are the reads that have a guard already.
"""

from __future__ import annotations

import collections
import sys
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...guards.sources import CONTENTS
from ...guards.values import FREE, FREE_BASES, FREE_OF_ATTRIBUTES, has_memory, is_a, is_input
from ..instrumentation.frames import skip_hooks
from ..instrumentation.instructions import HOOK_NAMES
from ..instrumentation.instrument import Site
from .conversions import converter
from .size_types import fix_size_whose_type_decides, need_number_itself
from .unfollowed import CLASS, IDENTITY


class Current:
    reads: Any = None
    seen: Any = frozenset()


current = Current()
NOTHING: frozenset[Any] = frozenset()


def _attribute(instance: object, site: Site) -> None:
    if (
        type(instance) not in FREE_OF_ATTRIBUTES
        and (id(instance), site.name) not in current.seen
        and _active()
    ):
        current.reads.attribute(instance, site.name, site)


def _active() -> Any:
    return current.reads is not None and current.reads.active()


def _global_name(site: Site) -> None:
    scope = sys._getframe(1).f_globals
    if ("global", id(scope), site.name) not in current.seen and _active():
        current.reads.global_name(scope, site.name, site)


def _cell(cell: object, site: Site) -> None:
    if _active():
        current.reads.cell(cell, site)


def _super_attribute(cls: type, instance: object, site: Site) -> None:
    if _active():
        current.reads.super_attribute(cls, instance, site.name, site)


def _imported(module: object, site: Site) -> None:
    if _active():
        current.reads.attribute(module, site.name, site)


def _import_name(level: int, site: Site) -> None:
    if _active():
        current.reads.imported_module(sys._getframe(1).f_globals, site.name, level, site)


def _item(container: object, key: object, site: Site) -> None:
    if type(container) not in FREE and _active():
        current.reads.item(container, key, site)


def _contains(container: object, key: object, site: Site) -> None:
    if type(container) not in FREE and _active():
        current.reads.contains(container, key, site)


def _contents(value: object, site: Site) -> None:
    if type(value) not in FREE and (id(value), CONTENTS) not in current.seen and _active():
        current.reads.contents(value, site)


def _elements(value: object, site: Site) -> None:
    if type(value) not in FREE and (id(value), CONTENTS) not in current.seen and _active():
        current.reads.elements_only(value, site)


def _truth(value: object, site: Site) -> None:
    (_elements if type(value) in _CONTAINERS else _contents)(value, site)


_CHANGED_IN_PLACE = (list, dict, set, collections.deque, bytearray, np.ndarray)
_CONTAINERS = frozenset([list, tuple, dict, set, frozenset, collections.deque])  # true if they have elements


def _operands(left: object, right: object, site: Site) -> None:
    _contents(left, site)
    _contents(right, site)
    if is_a(left, _CHANGED_IN_PLACE) and _active():  # perhaps by +=
        current.reads.writes.before_write(left, site)


def _counted(operand: object, site: Site) -> None:
    """The operand of `variable += expression` was computed."""
    if _active():
        current.reads.notes.count_by(operand, site)


def _comparison(left: object, right: object, site: Site) -> None:
    _contents(left, site)
    _contents(right, site)
    own: Any = type(left).__eq__
    if own is object.__eq__ and type(left) not in FREE:
        _identity(left, right, site)


def _identity(left: object, right: object, site: Site) -> None:
    if left is FakeTensor and right is torch.Tensor or right is FakeTensor and left is torch.Tensor:
        if _active():
            current.reads.notes.warn(site, CLASS)
    if site.is_user and _are_two_tensors(left, right) and _active():
        current.reads.notes.warn(site, IDENTITY)
    if left is None or right is None or not _active():
        return
    need_number_itself(left, site)
    need_number_itself(right, site)
    if not is_a(left, FREE_BASES):
        if current.reads.notes.twins:
            current.reads.compare_twins(left, right)
        current.reads.notes.pin(left)
        current.reads.notes.pin(right)


def _are_two_tensors(left: Any, right: Any) -> bool:
    """Whether an argument is compared with another tensor: a later call may pass one tensor for both."""
    if not is_a(left, torch.Tensor) or not is_a(right, torch.Tensor) or left is right:
        return False
    return is_input(left) and has_memory(right) or is_input(right) and has_memory(left)


def _exception(raised: object, site: Site) -> None:
    if _active():
        cls = raised if isinstance(raised, type) else type(raised)
        current.reads.class_attribute(cls, (), "", site)


def _match_class(value: Any, matched: Any, names: Any, site: Site) -> None:
    if _active():
        fix_size_whose_type_decides(isinstance, (value, matched), site)
        cls = type(value)
        current.reads.class_attribute(cls, cls.__mro__, "__match_args__", site)
        for name in (*getattr(cls, "__match_args__", ()), *names):
            current.reads.attribute(value, name, site)


def _call(function: Any, *arguments: Any) -> Any:
    """Return the function that is called in the place of `function`, which is itself for most."""
    if not _active():
        return function
    current.reads.call(function, arguments[:-1], arguments[-1])
    is_conversion = function is float or function is int
    return converter(function, arguments[:-1], arguments[-1]) if is_conversion else function


def _call_unpacked(function: object, *arguments: Any) -> None:
    if _active():
        reads, site = current.reads, arguments[-1]
        for container in arguments[:-1]:
            reads.contents(container, site)
        positional = arguments[0] if type(arguments[0]) in (tuple, list) else ()
        reads.call(function, tuple(positional), site)


def _store_attribute(instance: object, site: Site) -> None:
    if type(instance) not in FREE_OF_ATTRIBUTES and _active():
        current.reads.writes.store_attribute(instance, site.name, site)


def _store_item(container: object, key: object, site: Site) -> None:
    if type(container) not in FREE and _active():
        current.reads.writes.store_item(container, key, site)


def _store_contents(container: object, site: Site) -> None:
    if _active():
        current.reads.writes.store_contents(container, site)


def _store_global(site: Site) -> None:
    if _active():
        current.reads.writes.store_item(sys._getframe(1).f_globals, site.name, site)


def _store_cell(cell: object, site: Site) -> None:
    if _active():
        current.reads.writes.store_cell(cell, site)


def _of_tuple(hook: Any) -> Any:
    """The form of a hook for Python 3.10, which picks the operands from a tuple."""

    def pick(values: Any, chosen: Any, site: Site) -> None:
        hook(*[values[index] for index in chosen], site)

    return pick


HOOKS = {name: globals()[f"_{name}"] for name in HOOK_NAMES}
HOOKS.update({f"{name}_of_tuple": _of_tuple(hook) for name, hook in list(HOOKS.items())})
skip_hooks(HOOKS.values())
