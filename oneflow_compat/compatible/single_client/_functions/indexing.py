"""Gathering, scattering, slicing: top-level functions of the job-function API."""

import builtins
from collections.abc import Sequence
from typing import Any

import torch

from .._jobs import context as _context
from . import math as _math


def gather(
    params: torch.Tensor,
    indices: torch.Tensor,
    validate_indices: Any = None,
    axis: int | None = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> torch.Tensor:
    """Slices of `params` along the axis (batch_dims if None) at `indices`, which may have any shape.

    With batch_dims equal to the axis, the last dimension of `indices` is the gathered one, as in OneFlow.
    That holds for any value of the two, if the dimensions before it are those of `params`.
    """
    axis = batch_dims if axis is None else axis % params.dim()
    if (
        batch_dims
        and batch_dims == axis
        and indices.dim() <= params.dim()
        and indices.shape[:-1] == params.shape[: indices.dim() - 1]
    ):
        axis = batch_dims = indices.dim() - 1
    if batch_dims == 0:
        trace = _context.trace()
        if trace is not None and axis == 0:
            trace.note_rows(params, indices)
        flat = torch.index_select(params, axis, indices.reshape(-1).long())
        return flat.reshape(*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :])
    if batch_dims > axis or batch_dims > indices.dim():
        raise ValueError(
            f"gather: batch_dims {batch_dims} must not exceed the axis {axis} nor the {indices.dim()}"
            " dimensions of the indices"
        )
    middle = params.shape[batch_dims:axis]
    tail = params.shape[axis + 1 :]
    own = indices.shape[batch_dims:]
    flat = indices.long().reshape(*indices.shape[:batch_dims], *[1] * len(middle), -1, *[1] * len(tail))
    flat = flat.expand(*params.shape[:axis], flat.shape[axis], *tail)
    return torch.gather(params, axis, flat).reshape(*params.shape[:axis], *own, *tail)


def local_gather(
    params: torch.Tensor, indices: torch.Tensor, axis: int = 0, name: str | None = None
) -> torch.Tensor:
    """gather on one device."""
    return gather(params, indices, axis=axis)


def dim_gather(input: torch.Tensor, dim: int, index: torch.Tensor, name: str | None = None) -> torch.Tensor:
    return torch.gather(input, dim, index.long())


def gather_nd(params: torch.Tensor, indices: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """params[indices[..., 0], indices[..., 1], ...]."""
    return params[tuple(indices.long().unbind(-1))]


def scatter_nd(
    indices: torch.Tensor, updates: torch.Tensor, shape: Sequence[int], name: str | None = None
) -> torch.Tensor:
    """Zeros of `shape` plus `updates` at `indices`; equal indices add up."""
    out = torch.zeros(tuple(shape), dtype=updates.dtype, device=updates.device)
    return out.index_put(tuple(indices.long().unbind(-1)), updates, accumulate=True)


def tensor_scatter_nd_update(
    params: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, name: str | None = None
) -> torch.Tensor:
    return params.index_put(tuple(indices.long().unbind(-1)), updates)


def tensor_scatter_nd_add(
    params: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, name: str | None = None
) -> torch.Tensor:
    return params.index_put(tuple(indices.long().unbind(-1)), updates, accumulate=True)


def one_hot(
    indices: torch.Tensor,
    depth: int,
    on_value: float = 1,
    off_value: float = 0,
    axis: int = -1,
    dtype: torch.dtype | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """`on_value` at the index, `off_value` elsewhere, along a new dimension `axis`.

    Without a dtype the result is int32.
    """
    hot = torch.arange(depth, device=indices.device) == indices.long().unsqueeze(-1)
    dtype = dtype or torch.int32
    out = torch.where(
        hot,
        torch.full((), on_value, dtype=dtype, device=hot.device),
        torch.full((), off_value, dtype=dtype, device=hot.device),
    )
    return out if axis == -1 else torch.movedim(out, -1, axis)


def where(
    condition: torch.Tensor,
    x: torch.Tensor | None = None,
    y: torch.Tensor | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """x where the condition is not 0, else y; with neither x nor y, the positions of the non-zeros."""
    if x is None and y is None:
        return argwhere(condition)
    if x is None or y is None:
        raise ValueError("where: give both x and y, or neither")
    return torch.where(condition != 0, x, y)


def argwhere(
    condition: torch.Tensor, dtype: torch.dtype | None = None, name: str | None = None
) -> torch.Tensor:
    """Positions of the non-zeros, one row each, int32 unless told otherwise. The job runs op by op."""
    _context.value_dependent("argwhere")
    return torch.nonzero(condition).to(dtype or torch.int32)


def nonzero(a: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """Positions of the non-zeros, one row per dimension."""
    return argwhere(a).t()


def slice(
    x: torch.Tensor, begin: Sequence[Any], size: Sequence[int], name: str | None = None
) -> torch.Tensor:
    """Take size[i] elements from begin[i] in each dimension.

    A begin of None means from the start. A size of None or -1 means to the end.
    """
    begin, size = list(begin), list(size)
    if not len(begin) == len(size) == x.dim():
        raise ValueError(f"slice: begin and size need {x.dim()} entries, found {len(begin)} and {len(size)}")
    where_to = []
    for b, s, length in zip(begin, size, x.shape):
        b = 0 if b is None else (b + length if b < 0 else b)
        s = length - b if s is None or s == -1 else s
        if not (0 <= b <= length and 0 <= s <= length - b):
            raise ValueError(f"slice: begin {begin} and size {size} leave the shape {tuple(x.shape)}")
        where_to.append(builtins.slice(b, b + s))
    return x[tuple(where_to)]


def _slices(x: torch.Tensor, slice_tup_list: Sequence[Any]) -> list[Any]:
    """Convert [(start, stop, step), ...] to Python slices; a missing dimension is taken in full."""
    if len(slice_tup_list) > x.dim():
        raise ValueError(f"{len(slice_tup_list)} slices given for a blob of {x.dim()} dimensions")
    out = []
    for tup in slice_tup_list:
        tup = (tup,) if not isinstance(tup, (tuple, list)) else tuple(tup)
        if len(tup) != 3:
            raise ValueError(f"a slice is (start, stop, step), found {tup}")
        if tup[2] == 0:
            raise ValueError("the step of a slice must not be 0")
        out.append(builtins.slice(*tup))
    return out


def slice_v2(x: torch.Tensor, slice_tup_list: Sequence[Any], name: str | None = None) -> torch.Tensor:
    """x[start:stop:step, ...]; steps may be negative."""
    for axis, s in enumerate(_slices(x, slice_tup_list)):
        start, stop, step = s.indices(x.shape[axis])
        if step > 0:
            x = x[(builtins.slice(None),) * axis + (builtins.slice(start, stop, step),)]
        else:
            positions = torch.tensor(
                list(builtins.range(start, stop, step)), dtype=torch.int64, device=x.device
            )
            x = torch.index_select(x, axis, positions)
    return x


def slice_update(
    x: torch.Tensor, update: torch.Tensor, slice_tup_list: Sequence[Any], name: str | None = None
) -> torch.Tensor:
    """A copy of x with x[start:stop:step, ...] replaced by `update`. Steps are positive."""
    slices = tuple(_slices(x, slice_tup_list))
    if any(s.step is not None and s.step < 0 for s in slices):
        raise ValueError(f"slice_update: steps must be positive, found {[s.step for s in slices]}")
    positions = torch.arange(x.numel(), device=x.device).reshape(x.shape)[slices]
    flat = x.reshape(-1).index_put(
        (positions.reshape(-1),), update.expand(positions.shape).reshape(-1).to(x.dtype)
    )
    return flat.reshape(x.shape)


def in_top_k(
    targets: torch.Tensor, predictions: torch.Tensor, k: int, name: str | None = None
) -> torch.Tensor:
    return _math.in_top_k(targets, predictions, k)


def unsorted_segment_sum(
    data: torch.Tensor, segment_ids: torch.Tensor, num_segments: int, axis: int = 0, name: str | None = None
) -> torch.Tensor:
    return _math.unsorted_segment_sum(data, segment_ids, num_segments, axis)


def unsorted_segment_sum_like(
    data: torch.Tensor, segment_ids: torch.Tensor, like: torch.Tensor, axis: int = 0, name: str | None = None
) -> torch.Tensor:
    return _math.unsorted_segment_sum_like(data, segment_ids, like, axis)


def unsorted_batch_segment_sum(
    data: torch.Tensor, segment_ids: torch.Tensor, num_segments: int, name: str | None = None
) -> torch.Tensor:
    return _math.unsorted_batch_segment_sum(data, segment_ids, num_segments)


def sync_dynamic_resize(inputs: torch.Tensor, size: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """The first `size` rows of `inputs`; `size` is a one-element blob. The job runs op by op."""
    _context.value_dependent("sync_dynamic_resize")
    return inputs[: int(size.reshape(()))]


def distributed_partial_fc_sample(
    weight: torch.Tensor, label: torch.Tensor, num_sample: int, name: str | None = None
) -> tuple[torch.Tensor, ...] | None:
    """Return (mapped label, sampled ids, sampled weight).

    The sample holds all classes in `label`, filled up at random to `num_sample` rows.
    """
    _context.value_dependent("distributed_partial_fc_sample")
    classes = weight.shape[0]
    rank = torch.rand(classes, device=weight.device)
    rank = rank.index_fill(0, label.long(), 2.0)
    ids = torch.topk(rank, min(num_sample, classes))[1].sort()[0]
    row_in_sample = torch.searchsorted(ids, label.long())
    return row_in_sample.to(label.dtype), ids.to(label.dtype), weight[ids]
