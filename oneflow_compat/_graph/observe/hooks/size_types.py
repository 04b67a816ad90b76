"""Code that asks for the type of a size, which is a symbol and no int while build() is captured."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...code_origins import is_of_torch
from ...errors import CaptureError
from ...program.live_numbers import live_number
from ...program.symbolic import SYMBOLIC_NUMBERS
from ..instrumentation.instrument import Site
from .unfollowed import calling_site


def fix_size_whose_type_decides(function: Callable[..., Any], arguments: Sequence[Any], site: Site) -> None:
    """Ask a size for its number if the answer of `function`, isinstance or type, is another one for an int.

    Each size then has its own program, in which it is an int. A number that only a run knows has no such
    program, so it raises. torch's own code knows the symbols. Installed packages call type() on any object,
    and treat one of an unknown type as a leaf.
    """
    if not arguments or type(arguments[0]) not in SYMBOLIC_NUMBERS:
        return
    size = arguments[0]
    if is_of_torch(site.code.co_filename) or function is type and not site.is_user:
        return
    if not _decides(function, size, arguments[1:]):
        return
    live = live_number(size)
    if live is not None:
        live.numbers.need(live)
    elif size.node.has_hint():
        with contextlib.suppress(Exception):
            float(size)
    else:
        user_site = calling_site()
        raise CaptureError(
            "build() asks for the type of a number that depends on values (.item(), the size of x[mask])",
            "It is an int in eager mode, and a symbol while a program is captured.",
            None if user_site is None else user_site.code_location,
        )


def need_number_itself(number: object, site: Site) -> None:
    """Ask a number of the program for its value, because code reads an attribute of it or its identity.

    A symbol has others. torch's own code reads its node.
    """
    live = live_number(number)
    if live is not None and not is_of_torch(site.code.co_filename):
        live.numbers.need(live)


def need_numbers_of_numpy(function: object, arguments: Sequence[Any]) -> None:
    """Ask the numbers of the program for their values that NumPy gets: it would make an array of objects."""
    module = getattr(function, "__module__", None)
    if type(function) is np.ufunc or type(module) is str and module.partition(".")[0] == "numpy":
        nested = (v for a in arguments if type(a) in (list, tuple) for v in a)
        for value in (*arguments, *nested):
            live = live_number(value)
            if live is not None:
                live.numbers.need(live)


def _decides(function: Callable[..., Any], size: Any, rest: Any) -> bool:
    if function is type:
        return not rest
    example = {torch.SymInt: 2, torch.SymFloat: 2.5, torch.SymBool: True}[type(size)]
    return (
        function is isinstance
        and len(rest) == 1
        and isinstance(example, rest[0]) != isinstance(size, rest[0])
    )
