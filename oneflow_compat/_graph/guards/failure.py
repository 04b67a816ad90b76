"""The result of a test that failed."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..program.python_values import MISSING
from .places import changed_number
from .values import is_a

if TYPE_CHECKING:
    from ..program.locations import NumberSource
    from .guard import Guard


@dataclass(frozen=True)
class Failure:
    """A guard or another test that failed: why another program was needed."""

    label: str
    old: str = ""
    new: str = ""
    code_location: tuple[str, int, str] | None = None
    number: NumberSource | None = None  # of a number that holds another one now


def failure_of(guard: Guard) -> Failure:
    """Return the failure of a guard whose source holds another value."""
    old, new = _shown(guard.value), _shown(guard.current())
    return Failure(guard.label, old, new, guard.code_location, changed_number(guard))


def _shown(value: object) -> str:
    if value is MISSING:
        return "nothing"
    if isinstance(value, torch.Tensor) and is_a(value, torch.Tensor):
        return f"a tensor {list(value.shape)} of {value.dtype}"
    try:
        return reprlib.repr(value)
    except Exception:  # a repr of the user's
        return f"an object of {type(value).__name__}"
