"""Shorter paths through the Python code of torch's inductor (2.13). The generated code stays the same."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import sympy
import torch

from ...._signals import run_waiting_handlers
from .availability import where_available
from .fake_tensor_updates import updates_of_changed_nodes
from .plain_trees import plain_trees


@contextlib.contextmanager
def shortcuts() -> Iterator[None]:
    """Answer with a few operations what inductor computes in long ways, again and again.

    Without them, lowering a transformer takes 10 % longer.
    """
    with where_available(
        _short_answers,
        _one_table_of_vector_operations,
        _graphs_without_code,
        _signals_between_kernels,
        _one_view_for_dimensions,
        plain_trees,
        updates_of_changed_nodes,
    ):
        yield


@contextlib.contextmanager
def _short_answers() -> Iterator[None]:
    from torch._inductor.codegen import common, cpp

    handler, stride_at_vec_range = common.DtypePropagationOpsHandler, cpp.stride_at_vec_range

    def stride(index: sympy.Expr, variable: sympy.Symbol, vector_length: int | None = None) -> sympy.Expr:
        coefficient, rest = linear_and_other_terms(index, variable)
        return coefficient + stride_at_vec_range(rest, variable, vector_length) if rest else coefficient

    with (
        # inductor makes a handler with 200 attributes for each operator of each kernel; it has no state
        mock.patch.object(common, "DtypePropagationOpsHandler", functools.cache(handler)),
        mock.patch.object(cpp, "stride_at_vec_range", stride),
    ):
        yield


@contextlib.contextmanager
def _one_table_of_vector_operations() -> Iterator[None]:
    """Make the table of vector operations once for all kernels. It has no state.

    Inductor makes 126 functions for each kernel. They refer to one another, so only the garbage collector
    frees them.
    """
    from torch._inductor.codegen.cpp import CppVecOverrides

    overrides: Any = CppVecOverrides
    new = overrides.__new__
    make = functools.cache(lambda cls: new(cls))
    with mock.patch.object(overrides, "__new__", lambda cls, *args, **kwargs: make(cls)):
        yield


@contextlib.contextmanager
def _graphs_without_code() -> Iterator[None]:
    """Write the Python code of a graph only if something reads it.

    Each pass over the graph ends with new code for it, which nothing runs.
    """
    from torch.fx._lazy_graph_module import _use_lazy_graph_module

    with _use_lazy_graph_module(True):
        yield


@contextlib.contextmanager
def _signals_between_kernels() -> Iterator[None]:
    """Run handlers of signals between two kernels; compiling takes long."""
    from torch._inductor.codegen.cpp import CppKernelProxy

    codegen_nodes = CppKernelProxy.codegen_nodes

    def codegen(self: Any, nodes: Any) -> None:
        run_waiting_handlers()
        codegen_nodes(self, nodes)

    with mock.patch.object(CppKernelProxy, "codegen_nodes", codegen):
        yield


@contextlib.contextmanager
def _one_view_for_dimensions() -> Iterator[None]:
    """Let batch norm add the dimensions of an image to the values of its channels in one view.

    Torch's decompositions (2.13) add them one by one; in ResNet-50 that is every sixth node.
    """
    from torch._decomp import decompositions

    def add_first_and_last(values: torch.Tensor, shape: list[int]) -> torch.Tensor:
        return values.view(shape)

    def add_last(values: torch.Tensor, dimensions: int) -> torch.Tensor:
        added = [1] * (dimensions - values.ndim)
        return values.view(*values.shape, *added) if added else values

    with (
        mock.patch.object(decompositions, "_broadcast_batch_norm_backward", add_first_and_last),
        mock.patch.object(decompositions, "_unsqueeze_to_dim", add_last),
    ):
        yield


@functools.lru_cache(maxsize=4096)
def linear_and_other_terms(index: sympy.Expr, variable: sympy.Symbol) -> tuple[sympy.Expr, sympy.Expr]:
    """Return the coefficient of a variable in a sum of products, and the sum of the terms that are not linear
    in it.

    Inductor gets a stride from sympy.simplify() of the whole sum. That takes milliseconds, or seconds if the
    sizes of images are symbols.
    """
    coefficient = rest = sympy.Integer(0)
    for term in sympy.Add.make_args(index):
        if variable in term.free_symbols:
            factors = sympy.Mul.make_args(term)
            others = [factor for factor in factors if factor != variable]
            if len(factors) == len(others) + 1 and not any(variable in f.free_symbols for f in others):
                coefficient += sympy.Mul(*others)
            else:
                rest += term
    return coefficient, rest
