"""Places that hold one value outside of build(), and the Python numbers in them that a program reads."""

from __future__ import annotations

import collections
import threading
from typing import Any

from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..program.locations import NumberSource
from ..program.python_values import MISSING
from .counters import is_set_plainly
from .guard import Guard
from .sources import CELL, Attribute, Cell, ClassAttribute, Item
from .values import is_a

_NUMBERS = (int, float)
_DICTS = (dict, collections.OrderedDict, collections.defaultdict)
# The program has inputs of its own for their numbers.
_OF_TORCH = (Optimizer, LRScheduler, GradScaler)


class Place:
    """A variable of a closure, or an attribute that is in no dict, as a container without keys."""

    def __init__(self, owner: Any, name: Any) -> None:
        self.owner, self.name = owner, name

    def __getitem__(self, key: None) -> Any:
        return value_at(self.owner, self.name)

    def __setitem__(self, key: None, value: Any) -> None:
        if self.name is CELL:
            self.owner.cell_contents = value
        else:
            setattr(self.owner, self.name, value)


def value_at(owner: Any, name: Any) -> Any:
    """Return the value of an attribute, or of a variable of a closure; MISSING if it has none."""
    try:
        return owner.cell_contents if name is CELL else _of_object(owner, name)
    except (AttributeError, ValueError):
        return MISSING


def _of_object(owner: object, name: str) -> Any:
    if is_a(owner, threading.local):
        return getattr(owner, name)
    return type.__getattribute__(owner, name) if is_a(owner, type) else object.__getattribute__(owner, name)


def number_source(guard: Guard) -> NumberSource | None:
    """Return where the number of a guard lies, if it can be an input of a program."""
    source, owner, key = guard.source, guard.owner, guard.source.key
    if type(guard.value) not in _NUMBERS:
        return None
    if isinstance(source, Item) and type(owner) in _DICTS and type(key) is str and "params" not in owner:
        return NumberSource(owner, key, guard.label, (id(owner), key))
    is_cell = isinstance(source, Cell)
    if is_cell or isinstance(source, ClassAttribute) and type(owner) is type or _is_slot(guard):
        place = Place(owner, CELL if is_cell else key)
        return NumberSource(place, None, guard.label, (id(owner), key))
    return None


def _is_slot(guard: Guard) -> bool:
    source, owner = guard.source, guard.owner
    is_attribute = isinstance(source, Attribute) and not is_a(owner, _OF_TORCH)
    return is_attribute and is_set_plainly(source, owner, None)


def changed_number(guard: Guard) -> NumberSource | None:
    """Return the same if another number lies there now."""
    return number_source(guard) if type(guard.current()) in _NUMBERS else None
