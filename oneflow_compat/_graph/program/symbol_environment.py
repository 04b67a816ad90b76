"""Symbols for dimensions in torch's symbolic shapes, and the guards that a trace has noted, as Python."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import sympy
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.utils._sympy.printers import PythonPrinter

_UNBOUNDED = 2**62


def new_symbol(environment: ShapeEnv, name: str, dim: int, size: int) -> torch.SymInt:
    """Return a new symbol that has this size now, for a dimension of the tensor `name`."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    source = _source_class()(f"{name}.size({dim})")
    symbol = environment.create_symbol(size, source, DimDynamic.DYNAMIC)
    sym_int = environment.create_symintnode(symbol, hint=size, source=source)
    assert isinstance(sym_int, torch.SymInt)  # DYNAMIC: no constant
    return sym_int


def printed(expression: sympy.Basic) -> str:
    """Return a sympy expression as Python."""
    return str(_printer().doprint(expression))


def conditions_of(environment: ShapeEnv, symbols: Collection[sympy.Symbol]) -> tuple[str, ...]:
    """Return the bounds of the symbols, and each question that a trace asked about them with its answer.

    Expressions of other symbols, whose values are not known before a run, are left out.
    """
    conditions: dict[str, None] = {}  # an ordered set
    for symbol in symbols:
        bounds = environment.var_to_range[symbol]
        conditions[f"{symbol} >= {max(2, int(bounds.lower))}"] = None
        if bounds.upper.is_Integer and int(bounds.upper) < _UNBOUNDED:
            conditions[f"{symbol} <= {int(bounds.upper)}"] = None
    for guard in environment.guards:
        if guard.expr.free_symbols <= set(symbols):
            conditions[printed(guard.expr)] = None
    return tuple(conditions)


@functools.cache
def _printer() -> PythonPrinter:
    from torch.utils._sympy.printers import PythonPrinter

    class Printer(PythonPrinter):
        def _print_ToFloat(self, expression: sympy.Basic) -> str:
            return f"float({self._print(expression.args[0])})"

    return Printer()


@functools.cache
def _source_class() -> type:
    from torch._guards import GuardSource, Source

    class SizeOfTensor(Source):
        """Where torch reads a symbol: one dimension of a tensor."""

        _expression: str

        def __init__(self, expression: str) -> None:
            object.__setattr__(self, "_expression", expression)

        name = property(lambda self: self._expression)
        guard_source = property(lambda self: GuardSource.LOCAL)

        def __hash__(self) -> int:
            return hash(self._expression)

        def __eq__(self, source: object) -> bool:
            return isinstance(source, SizeOfTensor) and self._expression == source._expression

    return SizeOfTensor
