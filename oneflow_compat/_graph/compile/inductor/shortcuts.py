"""Shorter paths through the Python code of torch's inductor (2.13). The generated code stays the same."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import sympy


@contextlib.contextmanager
def shortcuts() -> Iterator[None]:
    """Answer with a few operations what inductor computes in long ways, again and again.

    They take a tenth of the time that lowering a transformer takes.
    """
    from torch._inductor.codegen import common, cpp

    handler, stride_at_vec_range = common.DtypePropagationOpsHandler, cpp.stride_at_vec_range

    def stride(index: Any, variable: Any, vector_length: Any = None) -> Any:
        coefficient = linear_coefficient(index, variable)
        return stride_at_vec_range(index, variable, vector_length) if coefficient is None else coefficient

    # inductor makes a handler with 200 attributes for each operator of each kernel; it has no state
    common.DtypePropagationOpsHandler = functools.cache(handler)  # type: ignore[assignment, misc]
    cpp.stride_at_vec_range = stride  # type: ignore[assignment]
    try:
        yield
    finally:
        common.DtypePropagationOpsHandler = handler  # type: ignore[misc]
        cpp.stride_at_vec_range = stride_at_vec_range


@functools.lru_cache(maxsize=4096)
def linear_coefficient(index: sympy.Expr, variable: sympy.Symbol) -> sympy.Integer | None:
    """Return the coefficient of a variable in a sum of integer multiples of symbols, or None if `index` is
    another expression. Inductor gets it from sympy.simplify(), which takes milliseconds.
    """
    coefficient = sympy.Integer(0)
    for term in sympy.Add.make_args(index):
        if not term.is_Integer:
            factor, symbol = term.as_coeff_Mul()
            if not (factor.is_Integer and symbol.is_Symbol):
                return None
            if symbol == variable:
                coefficient += factor
    return coefficient
