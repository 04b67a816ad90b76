"""float() and int() of tensors and numbers: the results are numbers of the program, as those of .item() are.

Python's own functions return a float or an int, whose value a capture has not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...code_origins import is_of_torch
from ...guards.values import is_fake
from ...program.live_numbers import function_of_numbers, live_number

if TYPE_CHECKING:
    from ..instrumentation.instrument import Site

Converter = Callable[[Any], Any]


def converter(function: Converter, arguments: Sequence[object], site: Site) -> Converter:
    """Return what is called in the place of float or int. torch's own code gets what it expects."""
    if len(arguments) != 1 or is_of_torch(site.code.co_filename):
        return function
    value = arguments[0]
    is_tensor = isinstance(value, torch.Tensor) and is_fake(value) and _has_one_element(value)
    return _CONVERTERS[function] if is_tensor or _is_of_run(value) else function


def _has_one_element(tensor: torch.Tensor) -> bool:
    """Whether that is known: a size that depends on values is no int."""
    return all(type(size) is int and size == 1 for size in tensor.shape)


def _is_of_run(value: object) -> bool:
    """Whether a value is a number of the program, or an integer that depends on values."""
    if live_number(value) is not None:
        return True
    return type(value) is torch.SymInt and not value.node.has_hint()


def _float(value: Any) -> Any:
    number = value.item() if isinstance(value, torch.Tensor) else value
    if type(number) is torch.SymInt and live_number(number) is None:
        return torch.sym_float(number)
    return _computed(float, number)


def _int(value: Any) -> Any:
    number = value.item() if isinstance(value, torch.Tensor) else value
    return number if type(number) is torch.SymInt else _computed(int, number)


def _computed(function: Converter, number: Any) -> Any:
    return function(number) if live_number(number) is None else function_of_numbers(function, (number,))


_CONVERTERS: dict[Any, Converter] = {float: _float, int: _int}
