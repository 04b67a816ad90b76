"""Gather, scatter, slice and segment operators that torch lacks."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch

from .. import _lazy_mode
from .._errors import RefusedStep
from .._global.tensor import replicated_like
from . import _check

__all__ = [
    "arg_sort",
    "dim_gather",
    "gather",
    "one_hot",
    "scatternd",
    "scatterndlike",
    "slice",
    "slice_update",
    "slice_view_1d_contiguous",
    "tensor_scatter_nd_update",
    "tensor_setitem",
    "unsorted_segment_sum",
    "unsorted_segment_sum_like",
]


def arg_sort(input: torch.Tensor | None = None, direction: str = "ASCENDING", **kwargs: Any) -> torch.Tensor:
    """Sorting indices of the last dimension, int32. direction "ASCENDING" or "DESCENDING".

    OneFlow calls the first argument `in`.

    RuntimeError for another direction.
    """
    x = kwargs.pop("in", input)
    if direction not in ("ASCENDING", "DESCENDING") or kwargs:
        raise RuntimeError(
            f"arg_sort: direction must be 'ASCENDING' or 'DESCENDING', found {direction!r}"
            f" {sorted(kwargs) or ''}"
        )
    return torch.argsort(x, dim=-1, descending=direction == "DESCENDING", stable=True).int()


def gather(x: torch.Tensor, indices: torch.Tensor, axis: int) -> torch.Tensor:
    """x.index_select for indices of any shape: the dimension `axis` is replaced by the shape of indices
    (numpy.take).
    """
    axis = _check.axis_of("gather", axis, x.ndim)
    return (
        x.index_select(axis, indices.reshape(-1).long()).unflatten(axis, tuple(indices.shape))
        if indices.ndim
        else x.select(axis, int(indices))
    )


def dim_gather(input: torch.Tensor, dim: int, index: torch.Tensor, sparse_grad: bool = False) -> torch.Tensor:
    """torch.gather."""
    return torch.gather(input, dim, index.long(), sparse_grad=sparse_grad)


def _nd(
    name: str, shape: Sequence[int], indices: torch.Tensor, updates: torch.Tensor | None = None
) -> tuple[torch.Tensor, ...]:
    """The index tuple of `indices` (..., K) into a tensor of `shape`."""
    k = indices.shape[-1] if indices.ndim else 0
    if k == 0 or k > len(shape):
        raise RuntimeError(
            f"{name}: indices must be (..., K) with K from 1 to {len(shape)}, found {tuple(indices.shape)}"
        )
    if updates is not None and tuple(updates.shape) != tuple(indices.shape[:-1]) + tuple(shape[k:]):
        raise RuntimeError(
            f"{name}: updates must be {tuple(indices.shape[:-1]) + tuple(shape[k:])} for indices"
            f" {tuple(indices.shape)} into {tuple(shape)}, found {tuple(updates.shape)}"
        )
    return indices.long().unbind(-1)


def scatternd(indices: torch.Tensor, updates: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Zeros of `shape` with the updates added at the index tuples; repeated tuples add up."""
    shape = tuple(shape)
    at = _nd("scatter_nd", shape, indices, updates)
    return updates.new_zeros(shape).index_put(at, updates, accumulate=True)


def scatterndlike(like: torch.Tensor, updates: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """scatternd to the shape of `like`."""
    return scatternd(indices, updates, like.shape)


def tensor_scatter_nd_update(
    tensor: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, inplace: bool = False
) -> torch.Tensor:
    """The tensor with rows replaced: out[indices[i]] = updates[i].

    Of repeated indices one wins. `inplace` writes into it.
    """
    at = _nd("tensor_scatter_nd_update", tensor.shape, indices, updates)
    updates = updates.to(tensor.dtype)
    return tensor.index_put_(at, updates) if inplace else tensor.index_put(at, updates)


def _slices(
    name: str, x: torch.Tensor, start: Sequence[int], stop: Sequence[int], step: Sequence[int]
) -> tuple[builtins.slice, ...]:
    if not len(start) == len(stop) == len(step) <= x.ndim:
        raise RuntimeError(
            f"{name}: start, stop and step must be equally long and at most {x.ndim}, found {len(start)},"
            f" {len(stop)}, {len(step)}"
        )
    if any(s <= 0 for s in step):
        raise RefusedStep(f"{name}: every step must be above 0, found {list(step)}")
    return tuple(builtins.slice(a, b, c) for a, b, c in zip(start, stop, step))


def slice(
    x: torch.Tensor,
    start: Sequence[int],
    stop: Sequence[int],
    step: Sequence[int],
    enable_view_slice: bool | None = None,
) -> torch.Tensor:
    """x[start[0]:stop[0]:step[0], ...], a view."""
    return x[_slices("slice", x, start, stop, step)]


def slice_update(
    ref: torch.Tensor,
    value: torch.Tensor,
    start: Sequence[int],
    stop: Sequence[int],
    step: Sequence[int],
    inplace: bool = False,
) -> torch.Tensor:
    """ref with x[start:stop:step] = value; a copy unless `inplace`.

    RuntimeError if the value does not have the shape of the slice.
    """
    at = _slices("slice_update", ref, start, stop, step)
    out = ref if inplace else ref.clone()
    if out[at].shape != value.shape:
        raise RuntimeError(
            f"slice_update: the slice has shape {tuple(out[at].shape)}, the value {tuple(value.shape)}"
        )
    out[at] = value.to(out.dtype)
    return out


def slice_view_1d_contiguous(x: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """x[start:end] of a tensor of one dimension, a view."""
    return x[start:end]


def tensor_setitem(x: torch.Tensor, index: Any, value: Any) -> None:
    """x[index] = value."""
    x[index] = value


def one_hot(
    input: torch.Tensor, num_classes: int = -1, on_value: float = 1, off_value: int = 0
) -> torch.Tensor:
    """on_value at the index, off_value elsewhere; int64, or float32 when one of the two is a float.
    num_classes -1: largest + 1.

    The result has shape (*input.shape, num_classes). RuntimeError for an index outside 0..num_classes-1.
    """
    n = num_classes if num_classes != -1 else int(input.max()) + 1
    dtype = torch.float32 if isinstance(on_value, float) or isinstance(off_value, float) else torch.int64
    is_traced = torch.compiler.is_compiling() or _lazy_mode.is_enabled()
    hot = input.unsqueeze(-1) == replicated_like(torch.arange(n, device=input.device), input)
    if is_traced or input.is_lazy:  # type: ignore[attr-defined]  # a row of _tables/tensor.py
        torch._assert_async(hot.any(-1).all(), f"one_hot: every index must be from 0 to {n - 1}")
    elif hot.numel() and not bool(hot.any(-1).all()):
        raise RuntimeError(
            f"one_hot: every index must be from 0 to {n - 1}, found {int(input.min())} to {int(input.max())}"
        )
    on, off = (
        replicated_like(torch.tensor(v, dtype=dtype, device=input.device), input)
        for v in (on_value, off_value)
    )
    return torch.where(hot, on, off)


def unsorted_segment_sum(
    x: torch.Tensor, segment_ids: torch.Tensor, axis: int, num_segments: int
) -> torch.Tensor:
    """Rows of x along `axis` added up by segment id; segment_ids 1-d.

    Ids outside 0..num_segments-1 are dropped.

    RuntimeError unless segment_ids has shape (x.shape[axis],).
    """
    axis = _check.axis_of("unsorted_segment_sum", axis, x.ndim)
    if segment_ids.ndim != 1 or segment_ids.shape[0] != x.shape[axis]:
        raise RuntimeError(
            f"unsorted_segment_sum: segment_ids must be ({x.shape[axis]},) for axis {axis} of"
            f" {tuple(x.shape)}, found {tuple(segment_ids.shape)}"
        )
    shape = x.shape[:axis] + (num_segments + 1,) + x.shape[axis + 1 :]
    at = torch.where((segment_ids >= 0) & (segment_ids < num_segments), segment_ids, num_segments).long()
    return x.new_zeros(shape).index_add(axis, at, x).narrow(axis, 0, num_segments)


def unsorted_segment_sum_like(
    x: torch.Tensor, segment_ids: torch.Tensor, like: torch.Tensor, axis: int
) -> torch.Tensor:
    """unsorted_segment_sum with as many segments as `like` has along `axis`.

    The result has the shape of x with like.shape[axis] rows along `axis`.
    """
    return unsorted_segment_sum(x, segment_ids, axis, like.shape[axis])
