"""Raw functions of oneflow._C for global tensors and ranks: creation and collectives under other names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .._global.tensor import make_global
from . import comm_ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._global.placement import placement as Placement
    from ..sbp import sbp as Sbp


__all__ = [
    "global_arange",
    "global_constant",
    "global_empty",
    "global_tensor_constant",
    "local_all_reduce",
    "local_reduce",
    "local_all_gather",
    "local_reduce_scatter",
    "comm_broadcast",
]


def _global(tensor: torch.Tensor, placement: Placement, sbp: Sbp | Sequence[Sbp]) -> torch.Tensor:
    return make_global(tensor, placement, sbp, is_full=True)


def global_arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: torch.dtype | None = None,
    placement: Placement,
    sbp: Sbp | Sequence[Sbp],
) -> torch.Tensor:
    """Return arange as a global tensor; with `start` alone, from 0 to `start`."""
    values = torch.arange(start, dtype=dtype) if end is None else torch.arange(start, end, step, dtype=dtype)
    return _global(values, placement, sbp)


def global_constant(
    shape: Sequence[int],
    value: float,
    *,
    dtype: torch.dtype | None,
    placement: Placement,
    sbp: Sbp | Sequence[Sbp],
) -> torch.Tensor:
    """Return a global tensor filled with one value."""
    return _global(torch.full(tuple(shape), value, dtype=dtype), placement, sbp)


def global_empty(
    shape: Sequence[int], *, dtype: torch.dtype | None, placement: Placement, sbp: Sbp | Sequence[Sbp]
) -> torch.Tensor:
    """Return a global tensor of undefined values."""
    return _global(torch.empty(tuple(shape), dtype=dtype), placement, sbp)


def global_tensor_constant(
    shape: Sequence[int],
    value: torch.Tensor,
    *,
    dtype: torch.dtype | None,
    placement: Placement,
    sbp: Sbp | Sequence[Sbp],
) -> torch.Tensor:
    """Return a global tensor filled with the value of a 0-d tensor."""
    return _global(torch.full(tuple(shape), value.item(), dtype=dtype), placement, sbp)


def local_all_reduce(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """Sum a local tensor over ranks.

    The result has the shape and dtype of the input.
    """
    out = x if inplace else x.clone()
    comm_ops.all_reduce(out)
    return out


def local_reduce(x: torch.Tensor, *, dst: int = 0, inplace: bool = True) -> torch.Tensor:
    """Sum a local tensor over ranks, on rank `dst`.

    The result has the shape and dtype of the input.
    """
    out = x if inplace else x.clone()
    comm_ops.reduce(out, dst)
    return out


def local_all_gather(output: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    """Concatenate every rank's `input` along dimension 0 into `output`."""
    comm_ops.all_gather_into_tensor(output, input)
    return output


def local_reduce_scatter(output: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    """Sum `input` over ranks; `output` gets this rank's shard of dimension 0."""
    comm_ops.reduce_scatter_tensor(output, input)
    return output


def comm_broadcast(
    x: torch.Tensor | Sequence[torch.Tensor] | None = None,
    *,
    inputs: Sequence[torch.Tensor] | None = None,
    src_rank: int = 0,
    inplace: bool = True,
) -> torch.Tensor | list[torch.Tensor]:
    """Copy rank `src_rank`'s tensor (or list of tensors) to every rank.

    The result has the shape and dtype of the input.
    """
    several = inputs is not None or isinstance(x, (list, tuple))
    asked: Any = inputs if inputs is not None else x if several else [x]
    tensors = [t if inplace else t.clone() for t in asked]
    for t in tensors:
        comm_ops.broadcast(t, src_rank)
    return tensors if several else tensors[0]
