"""Python's len, min, max, repr and math for sizes and numbers that are symbols."""

from __future__ import annotations

import builtins
import contextlib
import math
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...._active import capturing
from ...code_origins import is_internal
from ...program.live_numbers import function_of_numbers, live_number
from ...program.symbolic import SYMBOLIC_NUMBERS
from .patching import patched, patched_attributes

_MATH = (
    "exp sqrt log log2 log10 log1p expm1 pow sin cos tan tanh atan floor ceil trunc fabs isfinite isnan isinf"
).split()
_SYM_NODE = "torch.fx.experimental.sym_node"


@contextlib.contextmanager
def builtins_of_sizes() -> Iterator[None]:
    """While build() is captured, len() takes tensors of unknown sizes, min() and max() take sizes.

    They also take scalars computed from sizes, and tensors of one element. Functions of `math` take numbers
    of the program.
    """
    comparisons = [
        patched(cls, f"__{name}__", _comparison)
        for cls in (torch.SymInt, torch.SymFloat)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        if _SYM_NODE in sys.modules  # importing sym_node adds these methods to the classes
    ]
    with contextlib.ExitStack() as stack:
        for comparison in comparisons:
            stack.enter_context(comparison)
        yield from _patched_builtins()


def _patched_builtins() -> Iterator[None]:
    with (
        # the text of a symbol ("s0") as a key would be the same for all sizes
        patched(torch.SymInt, "__repr__", _repr_of_size),
        patched(torch.SymInt, "__hash__", _hash_of_number),
        patched(builtins, "len", _length),
        patched(builtins, "min", _extreme(torch.sym_min, operator.lt)),
        patched(builtins, "max", _extreme(torch.sym_max, operator.gt)),
        patched_attributes(_arithmetic_of_numbers()),
    ):
        yield


def _arithmetic_of_numbers() -> Iterator[tuple[object, str, object]]:
    """Yield (owner, name, function) of what Python computes otherwise than torch's symbols, or not at all."""
    for cls in (torch.SymInt, torch.SymFloat):
        yield cls, "__floordiv__", _divided(cls.__floordiv__, lambda a, b: (a, b))
        yield cls, "__rfloordiv__", _divided(cls.__rfloordiv__, lambda a, b: (b, a))
    yield torch.SymFloat, "__pow__", _raised(torch.SymFloat.__pow__)
    yield torch.SymInt, "__round__", _rounded(torch.SymInt.__round__)
    for name in _MATH:
        yield math, name, _of_numbers(getattr(math, name))


def _repr_of_size(original: Callable[..., Any]) -> Any:
    """Let a size print as its number in user code; the program is then guarded by the number."""

    def printed(size: Any) -> Any:
        name = sys._getframe(1).f_code.co_filename
        of_user = name.startswith("<") or not is_internal(name)
        return repr(int(size)) if of_user and capturing() else original(size)

    return printed


def _hash_of_number(original: Callable[..., int]) -> Any:
    """Let a number of the program that is a key of a dict be the error of such a number, not torch's."""

    def hashed(size: torch.SymInt) -> int:
        live = live_number(size)
        if live is not None:
            live.numbers.need(live)
        return original(size)

    return hashed


def _rounded(original: Callable[..., Any]) -> Any:
    """Round a number of the program as Python does. torch returns the number itself."""

    def rounded(size: torch.SymInt, digits: int | None = None) -> Any:
        live = live_number(size)
        return original(size, digits) if live is None else live.numbers.symbol(live.round(digits))

    return rounded


def _divided(original: Callable[..., Any], in_order: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
    """Divide numbers of the program as Python does. torch computes floor(a / b): 10.0 for 1.0 // 0.1."""

    def divided(number: Any, other: Any) -> Any:
        if not isinstance(other, (int, float, torch.SymInt, torch.SymFloat)):
            return original(number, other)
        operands = in_order(number, other)
        if any(live_number(operand) is not None for operand in operands):
            return function_of_numbers(operator.floordiv, operands)
        return original(number, other)

    return divided


def _raised(original: Callable[..., Any]) -> Any:
    """Raise a number of the program to a power as Python does. torch takes no negative number.

    Only a power with a fraction makes a complex number of that.
    """

    def raised(number: Any, exponent: Any) -> Any:
        live = live_number(number)
        if live is None or type(exponent) not in (int, float):
            return original(number, exponent)
        if float(exponent).is_integer():
            return function_of_numbers(operator.pow, (number, float(exponent)))
        if not number >= 0:
            live.numbers.need(live)
        return original(number, exponent)

    return raised


def _comparison(original: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison of user code is a bool, as in eager mode; its outcome is a guard of the program.

    The comparison of a size that depends on values stays a symbol, until the program branches on it.
    """

    def compared(size: Any, operand: Any) -> Any:
        outcome = original(size, operand)
        if type(outcome) is not torch.SymBool or not capturing():
            return outcome
        if is_internal(sys._getframe(1).f_code.co_filename):
            return outcome
        is_known = live_number(outcome) is not None or outcome.node.has_hint()
        return bool(outcome) if is_known else outcome

    return compared


def _length(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: (
        x.shape[0] if type(x) is FakeTensor and x._has_symbolic_sizes_strides and x.dim() else original(x)
    )


def _is_known(value: Any) -> bool:
    live = live_number(value)
    return live is not None and live.value is not None


def _of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `math` that takes numbers of the program, too."""

    def computed(*values: Any) -> Any:
        if any(live_number(value) is not None for value in values):
            return function_of_numbers(function, values)
        return function(*values)

    return computed


def _are_tensor_and_number(values: tuple[Any, Any]) -> bool:
    """Whether one value is a tensor without dimensions, and the other one the same or a number."""
    tensors = [v for v in values if type(v) is FakeTensor and v.dim() == 0]
    # an integer tensor and 0.5 would make the dtype of the result a branch
    types = (int, float) if tensors and tensors[0].is_floating_point() else (int,)
    return bool(tensors) and all(v is tensors[0] or type(v) in types for v in values)


def _are_floats_of_runs(values: tuple[Any, Any]) -> bool:
    """Whether all values are floats, and one of them is what .item() gave."""
    numbers = [live_number(value) for value in values]
    is_float = (type(v) is float if live is None else live.is_float() for v, live in zip(values, numbers))
    return any(numbers) and all(is_float)


def _extreme(of_sizes: Any, better: Any) -> Any:
    def make(original: Callable[..., Any]) -> Any:
        def extreme(*values: Any, **named: Any) -> Any:
            if len(values) == 2 and not named and not type(values[0]) is type(values[1]) is int:
                if any(map(_is_known, values)):  # the branch is a condition of the program
                    return original(*values)
                if _are_floats_of_runs(values):
                    return function_of_numbers(original, values)
                if type(values[0]) in SYMBOLIC_NUMBERS or type(values[1]) in SYMBOLIC_NUMBERS:
                    return of_sizes(*values)
                if _are_tensor_and_number(values):
                    return torch.where(better(values[1], values[0]), values[1], values[0])
            return original(*values, **named)

        return extreme

    return make
