"""Raw functions of oneflow._C for global tensors and ranks: creation and collectives under other names."""

from __future__ import annotations

import torch

from .._global.tensor import make_global
from . import comm_ops

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


def _global(tensor, placement, sbp):
    return make_global(tensor, placement, sbp, whole=True)


def global_arange(start, end=None, step=1, *, dtype=None, placement, sbp):
    """Return arange as a global tensor; with `start` alone, from 0 to `start`."""
    values = torch.arange(start, dtype=dtype) if end is None else torch.arange(start, end, step, dtype=dtype)
    return _global(values, placement, sbp)


def global_constant(shape, value, *, dtype, placement, sbp):
    """Return a global tensor filled with one value."""
    return _global(torch.full(tuple(shape), value, dtype=dtype), placement, sbp)


def global_empty(shape, *, dtype, placement, sbp):
    """Return a global tensor of undefined values."""
    return _global(torch.empty(tuple(shape), dtype=dtype), placement, sbp)


def global_tensor_constant(shape, value, *, dtype, placement, sbp):
    """Return a global tensor filled with the value of a 0-d tensor."""
    return _global(torch.full(tuple(shape), value.item(), dtype=dtype), placement, sbp)


def local_all_reduce(x, inplace=False):
    """Sum a local tensor over ranks.

    The result has the shape and dtype of the input.
    """
    out = x if inplace else x.clone()
    comm_ops.all_reduce(out)
    return out


def local_reduce(x, *, dst=0, inplace=True):
    """Sum a local tensor over ranks, on rank `dst`.

    The result has the shape and dtype of the input.
    """
    out = x if inplace else x.clone()
    comm_ops.reduce(out, dst)
    return out


def local_all_gather(output, input):
    """Concatenate every rank's `input` along dimension 0 into `output`."""
    comm_ops.all_gather_into_tensor(output, input)
    return output


def local_reduce_scatter(output, input):
    """Sum `input` over ranks; `output` gets this rank's shard of dimension 0."""
    comm_ops.reduce_scatter_tensor(output, input)
    return output


def comm_broadcast(x=None, *, inputs=None, src_rank=0, inplace=True):
    """Copy rank `src_rank`'s tensor (or list of tensors) to every rank.

    The result has the shape and dtype of the input.
    """
    several = inputs is not None or isinstance(x, (list, tuple))
    tensors = [t if inplace else t.clone() for t in (inputs if inputs is not None else x if several else [x])]
    for t in tensors:
        comm_ops.broadcast(t, src_rank)
    return tensors if several else tensors[0]
