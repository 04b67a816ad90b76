"""Numbers of the capture that build() leaves in objects outside, where no run fills in their values.

correct += (y.argmax(1) == target).sum().item()    # `correct` would be the symbol u0 from now on
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable
from typing import Any

import torch

from ...guards.values import is_a
from ...program.symbolic import SYMBOLIC_NUMBERS

# They lead to all of a program, or hold numbers that belong to the capture.
_CLOSED = (type, types.ModuleType, types.FrameType, types.CodeType, torch.Tensor)
_LIBRARIES = ("torch.", "sympy.", __package__.partition(".observe")[0])


def holds_number(values: Iterable[Any]) -> bool:
    """Whether a number that only a run knows is among the values, or in an object that they lead to."""
    pending, seen = list(values), set[int]()
    alive = []  # no object gets the identity of another
    while pending:
        value = pending.pop()
        if type(value) in SYMBOLIC_NUMBERS:
            return True
        if id(value) in seen or not gc.is_tracked(value) or _is_closed(value):
            continue
        seen.add(id(value))
        alive.append(value)
        pending += _parts(value)
    return False


def _is_closed(value: object) -> bool:
    if is_a(value, torch.nn.Module):
        return False
    return is_a(value, _CLOSED) or type(value).__module__.startswith(_LIBRARIES)


def _parts(value: object) -> list[Any]:
    if isinstance(value, types.FunctionType):  # not its globals
        return [value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__]
    return gc.get_referents(value)
