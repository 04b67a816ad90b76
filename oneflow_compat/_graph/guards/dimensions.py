"""Guards on the dimensions of arguments: which sizes one program serves.

A dynamic program has symbols ("s0") in the shapes of its arguments. Its guards say what the sizes of a call
must satisfy: the fixed dimensions, the strides, and the conditions that the capture assumed, such as
`s0 % 4 == 0`. The conditions are Python expressions of a small grammar, so that they can be saved, read from
a file of a stranger, and printed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.USub, ast.Not, ast.And, ast.Or)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_FUNCTIONS = {"max": max, "min": min, "abs": abs, "float": float, "int": int, "round": round}
_MATH = {"floor", "ceil", "trunc", "sqrt"}
_LARGEST_POWER = 8
_LONGEST = 4000  # characters of one condition


class UnsupportedExpression(ValueError):
    """An expression outside the grammar of guards."""


@dataclass(frozen=True)
class Dimension:
    """A dimension of an argument that may differ from call to call."""

    symbol: str
    argument: int  # index of a flat argument, as in the location of a slot
    dim: int
    example: int  # the size at the capture


@dataclass(frozen=True)
class Layout:
    """Shape and strides of one argument: numbers, symbols, and expressions of symbols."""

    shape: tuple[int | str, ...]
    stride: tuple[int | str, ...]


@dataclass(frozen=True)
class DimensionGuards:
    """The sizes that a program serves.

    In `graph(x, y)` with rows s0 of x and y: dimensions (s0, 0, 0, 5) and (s1, 1, 0, 5), the layouts
    {0: ((s0, 8), (8, 1)), 1: ((s1,), (1,))} and the conditions s0 >= 2, s1 >= 2, s0 == s1.
    """

    dimensions: tuple[Dimension, ...]
    layouts: Mapping[int, Layout]  # {index of a flat argument: its layout}
    conditions: tuple[str, ...]  # expressions of the symbols

    def __post_init__(self) -> None:
        symbols = {d.symbol for d in self.dimensions}
        for expression in (*self.conditions, *self._expressions()):
            check_expression(expression, symbols)

    def _expressions(self) -> list[str]:
        return [
            n for layout in self.layouts.values() for n in (*layout.shape, *layout.stride) if type(n) is str
        ]

    def serves(self, sizes: tuple[int, ...]) -> bool:
        """Whether these sizes of the dimensions, in their order, satisfy the conditions."""
        symbols = {d.symbol: size for d, size in zip(self.dimensions, sizes)}
        try:
            return all(evaluate(condition, symbols) for condition in self.conditions)
        except ZeroDivisionError:
            return False

    def compile(self, with_strides: bool = True) -> Callable[[Sequence[Any]], bool]:
        """Return a function of the flat arguments: whether the program serves their sizes.

        Without strides, the arguments may have any layout.
        """
        reads, tests = self._reads_and_tests(with_strides)
        lines = "".join(f"  {read}\n" for read in reads)
        fits: Callable[[Sequence[Any]], bool] = _compiled(
            "fits",
            f"def fits(a):\n{lines}  try:\n    return {' and '.join(tests) or 'True'}\n"
            "  except ZeroDivisionError:\n    return False\n",
        )
        return fits

    def compile_strides(self) -> Callable[[Sequence[Any]], dict[int, tuple[int, ...]]]:
        """Return a function of the flat arguments: {index: strides that the program needs}."""
        reads, _ = self._reads_and_tests(False)
        lines = "".join(f"  {read}\n" for read in reads)
        items = "".join(f"{index}: ({_listed(layout.stride)}), " for index, layout in self.layouts.items())
        strides: Callable[[Sequence[Any]], dict[int, tuple[int, ...]]] = _compiled(
            "strides", f"def strides(a):\n{lines}  return {{{items}}}\n"
        )
        return strides

    def _reads_and_tests(self, with_strides: bool) -> tuple[list[str], list[str]]:
        """Return (statements that read the symbols, conditions)."""
        reads = [f"{d.symbol} = a[{d.argument}].shape[{d.dim}]" for d in self.dimensions]
        dynamic, tests = {(d.argument, d.dim) for d in self.dimensions}, []
        for index, layout in self.layouts.items():
            fixed = [(dim, n) for dim, n in enumerate(layout.shape) if (index, dim) not in dynamic]
            tests += [f"a[{index}].shape[{dim}] == {size}" for dim, size in fixed]
            if with_strides:
                tests.append(f"a[{index}].stride() == ({_listed(layout.stride)})")
        return reads, tests + [f"({condition})" for condition in self.conditions]

    def __str__(self) -> str:
        """The sizes in words: s0 is dimension 1 of argument 0; s0 >= 2."""
        symbols = ", ".join(
            f"{d.symbol} is dimension {d.dim} of argument {d.argument}" for d in self.dimensions
        )
        return "; ".join((symbols, *self.conditions))


def _listed(values: tuple[int | str, ...]) -> str:
    return "".join(f"{value}, " for value in values)


def _compiled(name: str, code: str) -> Any:
    scope: dict[str, Any] = {"math": math}
    exec(compile(code, "<guards on dimensions>", "exec"), scope)
    return scope[name]


def evaluate(size: int | str, symbols: Mapping[str, int | torch.SymInt]) -> Any:
    """Return the value of a size of a layout or of a condition; `symbols` has the sizes of the symbols."""
    if type(size) is not str:
        return size
    return eval(compile(size, "<size>", "eval"), {"__builtins__": _FUNCTIONS, "math": math}, dict(symbols))


def check_expression(expression: str, symbols: Collection[str]) -> None:
    """Raise UnsupportedExpression unless the expression is arithmetic on these symbols."""
    if len(expression) > _LONGEST:
        raise UnsupportedExpression(
            f"a condition of {len(expression)} characters; at most {_LONGEST} are allowed"
        )
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnsupportedExpression(f"{expression!r} is no expression") from error
    for node in ast.walk(tree):
        if not _is_allowed(node, symbols):
            raise UnsupportedExpression(
                f"{expression!r} has a {type(node).__name__}, which guards do not have"
            )


def _is_allowed(node: ast.AST, symbols: Collection[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in symbols or node.id in _FUNCTIONS or node.id == "math"
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float, bool)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        exponent = node.right.value if isinstance(node.right, ast.Constant) else None
        return type(exponent) is int and 0 <= exponent <= _LARGEST_POWER
    if isinstance(node, ast.Call):
        return not node.keywords and _is_function(node.func)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "math" and node.attr in _MATH
    plain = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Load, ast.Pow, *_OPERATORS, *_COMPARISONS)
    return isinstance(node, plain)


def _is_function(function: ast.AST) -> bool:
    return isinstance(function, ast.Attribute) or isinstance(function, ast.Name) and function.id in _FUNCTIONS
