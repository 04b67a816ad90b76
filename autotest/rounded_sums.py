"""Sums that a run in float64 rounds as a kernel of a narrower dtype may.

A kernel adds the terms of a sum in an order of its own, and rounds each partial sum. So the sum may be half a
unit of its terms away, which is many units of the sum if the terms cancel. If they do not cancel, the partial
sums grow: the roundings of n of them make about sqrt(n) / 4 half units. A perturbed input shows neither: a
layer norm gives the same result for a scaled row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Operators that add products or elements of their arguments. They are linear in each argument, so their
# result for absolute values is the sum of the magnitudes of the terms.
SUMS = (
    "sum mean cumsum mm bmm mv dot addmm addbmm baddbmm addmv convolution convolution_backward index_add"
    " scatter_add embedding_dense_backward avg_pool2d"
).split()
# Operators that add squares. The result is the sum of the magnitudes, or its root.
SQUARES = ("norm", "linalg_vector_norm")
# Kernels that add inside. Torch writes them with the operators above.
COMPOSED = (
    "native_layer_norm native_layer_norm_backward native_batch_norm native_batch_norm_backward"
    " native_group_norm native_group_norm_backward _softmax_backward_data _log_softmax_backward_data"
    " var std var_mean std_mean"
).split()


class RoundedSums(TorchDispatchMode):
    """Move each sum by half a unit of its terms, up or down at random.

    `sum([1000, -1000, 1])` with eps 2**-23 is 1 +- 2001 * 2**-24.

    run: 0 to 3. Of four runs, each sum moves up in two. The patterns of three sums in a row are orthogonal,
    so their moves cannot cancel in all runs.
    """

    def __init__(self, eps: float, run: int) -> None:
        super().__init__()
        self.eps, self.run, self.count = eps, run, 0
        self.rng = np.random.default_rng(0)  # the same in each run

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        decomposed = compositions().get(operator)
        if decomposed is not None:
            with self:
                return decomposed(*args, **kwargs)
        result = operator(*args, **kwargs)
        if operator in squares():
            return self.moved(result, result, args)
        if operator not in sums():
            return result
        sizes = operator(*magnitudes(args), **magnitudes(kwargs))
        if isinstance(result, torch.Tensor):
            return self.moved(result, sizes, args)
        return tuple(self.moved(t, size, args) for t, size in zip(result, sizes))

    def moved(
        self, result: torch.Tensor | None, size: torch.Tensor | None, args: tuple[Any, ...]
    ) -> torch.Tensor | None:
        """Return the result of a sum, moved by half a unit of `size`, or more for many terms."""
        if result is None or size is None or not (result.is_floating_point() or result.is_complex()):
            return result
        terms = args[0].numel() / max(result.numel(), 1) if isinstance(args[0], torch.Tensor) else 1
        size = torch.maximum(size.abs(), result.abs() * (math.sqrt(terms) / 4))
        signs = torch.from_numpy(self.rng.choice([-0.5, 0.5], size=tuple(result.shape))).to(result.device)
        pattern = self.count % 3 + 1  # signs of Walsh functions: -1 to the power of the common bits
        self.count += 1
        return result + size * signs * (self.eps * (-1) ** (pattern & self.run).bit_count())


@functools.cache
def sums() -> frozenset[Any]:
    # torch's decompositions of var_mean add with the operator of torch._prims
    return frozenset([torch.ops.prims.sum.default, *(o for name in SUMS for o in overloads(name))])


@functools.cache
def squares() -> frozenset[Any]:
    return frozenset([torch.ops.prims.var.default, *(o for name in SQUARES for o in overloads(name))])


@functools.cache
def compositions() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import decomposition_table

    every = [o for name in COMPOSED for o in overloads(name)]
    return {o: decomposition_table[o] for o in every if o in decomposition_table}


def overloads(name: str) -> list[Any]:
    """Return the overloads of an operator of torch that write into no argument."""
    packet = getattr(torch.ops.aten, name)
    every = [getattr(packet, overload) for overload in packet.overloads()]
    return [o for o in every if not o._schema.is_mutable]


def magnitudes(x: Any) -> Any:
    """Return the absolute values of the float tensors in x."""
    if isinstance(x, torch.Tensor):
        return x.abs() if x.is_floating_point() or x.is_complex() else x
    if isinstance(x, (tuple, list)):
        return type(x)(magnitudes(e) for e in x)
    return {key: magnitudes(value) for key, value in x.items()} if isinstance(x, dict) else x
