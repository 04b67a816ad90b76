"""Selecting, gathering and scattering: integer masks, scalar operands, and OneFlow's own gather_nd family."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from .._errors import RefusedStep
from ._signature import REFUSED, documented, need_tensors, or_else, spelled

__all__ = [
    "where",
    "masked_fill",
    "masked_select",
    "argwhere",
    "searchsorted",
    "batch_gather",
    "gather_nd",
    "scatter_nd",
    "tensor_scatter_nd_update",
    "slice",
    "slice_update",
    "index_add_",
    "scatter",
    "scatter_add",
]


@documented("(condition, x=None, y=None, *, input=None, other=None, out=None)")
def where(*args: Any, **kwargs: Any) -> torch.Tensor | Any:
    """torch.where; the condition may be of any integer dtype. Numbers take the dtype torch gives them.

    OneFlow calls the operands x and y, torch input and other; without operands the indices of the true
    elements are returned, a tuple of int64 tensors.
    """
    if kwargs or len(args) != 3 or getattr(args[0], "dtype", None) is not torch.bool:
        return _where(*args, **kwargs)
    return torch.where(*args)


def _where(
    condition: torch.Tensor,
    x: torch.Tensor | float | None = None,
    y: torch.Tensor | float | None = None,
    *,
    input: torch.Tensor | float | None = None,
    other: torch.Tensor | float | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor | Any:
    x, y = (input if x is None else x), (other if y is None else y)
    if x is None and y is None:
        return torch.where(condition)
    if isinstance(condition, torch.Tensor) and condition.dtype is not torch.bool:
        condition = condition.bool()
    return torch.where(condition, x, y) if out is None else torch.where(condition, x, y, out=out)


def _with_mask(target: Callable[..., Any], signature: str, doc: str) -> Callable[..., torch.Tensor]:
    @or_else(target, target.__name__, signature, doc)
    def slow(
        error: Exception,
        input: Any = None,
        mask: torch.Tensor | None = None,
        *rest: Any,
        x: Any = None,
        **kwargs: Any,
    ) -> Any:
        input = x if input is None else input
        if not isinstance(mask, torch.Tensor) or mask.dtype is torch.bool:
            return REFUSED
        return target(input, mask.bool(), *rest, **kwargs)

    return slow


masked_fill = _with_mask(
    torch.masked_fill,
    "(input, mask, value)",
    "torch.masked_fill; the mask may be of any dtype (true where not zero).",
)
masked_select = _with_mask(
    torch.masked_select,
    "(input, mask, *, out=None)",
    "torch.masked_select; the mask may be of any dtype (true where not zero).",
)


@spelled("x=input")
def argwhere(input: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """torch.argwhere; `dtype` converts the indices, int64 unless given (OneFlow: int32)."""
    out = torch.argwhere(input)
    return out if dtype is None else out.to(dtype)


@spelled("input=values")
def searchsorted(
    sorted_sequence: torch.Tensor,
    values: torch.Tensor | float,
    out_int32: bool = False,
    right: bool = False,
    *,
    side: Literal["left", "right"] | None = None,
    sorter: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.searchsorted; `out_int32` and `right` also by position."""
    extra = {k: v for k, v in (("side", side), ("sorter", sorter), ("out", out)) if v is not None}
    return torch.searchsorted(sorted_sequence, values, out_int32=out_int32, right=right, **extra)


def _scatter(*args: Any, **kwargs: Any) -> torch.Tensor:
    if (
        kwargs.get("reduce") in ("add", "multiply")
        and torch.is_grad_enabled()
        and any(isinstance(x, torch.Tensor) and x.requires_grad for x in (*args, *kwargs.values()))
    ):
        return _scatter_with_gradients(*args, **kwargs)
    return torch.scatter(*args, **kwargs)


def _scatter_with_gradients(
    input: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor | float | None = None,
    *,
    reduce: Literal["add", "multiply"],
    value: float | None = None,
) -> torch.Tensor:
    """torch has none for `reduce`, but for these two operators."""
    factor: Any = value if src is None else src
    if isinstance(factor, (int, float)):
        factor = torch.full_like(index, factor, dtype=input.dtype)
    if reduce == "add":
        return torch.scatter_add(input, dim, index, factor)
    # the gradient of scatter_reduce needs equal sizes
    return torch.scatter_reduce(input, dim, index, factor[tuple(map(builtins.slice, index.shape))], "prod")


@or_else(
    _scatter,
    "scatter",
    "(input, dim, index, src, *, reduce=None)",
    "torch.scatter; `src` may be a number under that name, and `reduce` has gradients.",
)
def scatter(
    error: Exception,
    input: Any = None,
    dim: Any = None,
    index: Any = None,
    src: Any = None,
    *,
    reduce: Any = None,
    **kwargs: Any,
) -> Any:
    if kwargs or not isinstance(src, (int, float, bool)):
        return REFUSED
    return (
        torch.scatter(input, dim, index, src)
        if reduce is None
        else _scatter(input, dim, index, src, reduce=reduce)
    )


@or_else(
    torch.scatter_add, "scatter_add", "(input, dim, index, src)", "torch.scatter_add; `src` may be a number."
)
def scatter_add(
    error: Exception, input: Any = None, dim: Any = None, index: Any = None, src: Any = None
) -> Any:
    if not isinstance(src, (int, float)) or not isinstance(index, torch.Tensor):
        return REFUSED
    return torch.scatter_add(input, dim, index, torch.full_like(index, src, dtype=input.dtype))


@spelled("x=input")
def index_add_(
    input: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, alpha: float = 1.0
) -> torch.Tensor:
    """input.index_add_(dim, index, source, alpha=alpha).

    In place, as torch.Tensor.index_add_; returns input.
    """
    return input.index_add_(dim, index, source, alpha=alpha)


def batch_gather(
    input: torch.Tensor | None = None, indices: torch.Tensor | None = None, **kwargs: Any
) -> torch.Tensor:
    """Rows of `input` (B..., N, ...) chosen by `indices` (B..., M): result (B..., M, ...).

    The leading dimensions B of both must agree; with 1-D indices there are none. OneFlow's name of the
    first argument, `in`, is accepted as a keyword.

    RuntimeError if the leading dimensions differ. TypeError for indices that are not integers.
    """
    input = kwargs.pop("in", input)
    if kwargs or input is None or indices is None:
        raise TypeError(
            f"batch_gather(input, indices) takes two tensors, found the keywords {sorted(kwargs)}"
        )
    need_tensors("batch_gather", input=input, indices=indices)
    if indices.is_floating_point():
        raise TypeError(f"batch_gather: indices must be integers, found {indices.dtype}")
    batch = indices.dim() - 1
    if batch < 0 or input.dim() <= batch or input.shape[:batch] != indices.shape[:batch]:
        raise RuntimeError(
            f"batch_gather: indices of shape {tuple(indices.shape)} do not fit an input of shape"
            f" {tuple(input.shape)}; all dimensions of indices but the last must be those of input"
        )
    lead = [
        torch.arange(n, device=indices.device).reshape([-1 if i == d else 1 for i in range(batch + 1)])
        for d, n in enumerate(input.shape[:batch])
    ]
    index = (*lead, indices.long())
    return input[index]


def _coordinates(name: str, indices: torch.Tensor, dims: int) -> tuple[torch.Tensor, ...]:
    """One index tensor for each column of `indices`."""
    need_tensors(name, indices=indices)
    if indices.is_floating_point() or indices.dim() == 0 or indices.shape[-1] > dims:
        raise RuntimeError(
            f"{name}: indices must be integers with at most {dims} in the last dimension, found"
            f" {indices.dtype} of shape {tuple(indices.shape)}"
        )
    return tuple(indices.long().unbind(-1))


def gather_nd(params: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Slices of `params` at the coordinates in the last dimension of `indices`: shape indices.shape[:-1] +
    params.shape[k:].
    """
    need_tensors("gather_nd", params=params)
    return params[_coordinates("gather_nd", indices, params.dim())]


def scatter_nd(index: torch.Tensor, update: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Zeros of `shape` with `update` added at the coordinates in the last dimension of `index`; repeated
    coordinates add up.
    """
    need_tensors("scatter_nd", update=update)
    out = torch.zeros(tuple(shape), dtype=update.dtype, device=update.device)
    return out.index_put(_coordinates("scatter_nd", index, out.dim()), update, accumulate=True)


def tensor_scatter_nd_update(
    tensor: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor
) -> torch.Tensor:
    """A copy of `tensor` with `updates` written at the coordinates in the last dimension of `indices`."""
    return tensor.index_put(_coordinates("tensor_scatter_nd_update", indices, tensor.dim()), updates)


def _slices(slice_tup_list: Sequence[Sequence[int | None]], dims: int) -> tuple[Any, ...]:
    if not isinstance(slice_tup_list, (tuple, list)) or len(slice_tup_list) > dims:
        raise ValueError(
            f"slice: a list of at most {dims} (start, stop, step) is needed for {dims} dimensions, found"
            f" {slice_tup_list!r}"
        )
    out = []
    for i, entry in enumerate(slice_tup_list):
        if (
            not isinstance(entry, (tuple, list))
            or len(entry) != 3
            or not all(v is None or hasattr(v, "__index__") for v in entry)
        ):
            raise ValueError(
                f"slice: entry {i} must be (start, stop, step), each an integer or None, found {entry!r}"
            )
        if entry[2] is not None and int(entry[2]) <= 0:
            raise RefusedStep(f"slice: the step of entry {i} must be above 0, found {entry!r}")
        out.append(_slice(*(None if v is None else int(v) for v in entry)))
    return tuple(out)


_slice = slice


def slice(input: torch.Tensor, slice_tup_list: Sequence[Sequence[int | None]]) -> torch.Tensor:
    """input[start:stop:step, ...] from a list of (start, stop, step), None for the whole; the result is a
    view.
    """
    return input[_slices(slice_tup_list, input.dim())]


def slice_update(
    input: torch.Tensor, update: torch.Tensor, slice_tup_list: Sequence[Sequence[int | None]]
) -> torch.Tensor:
    """Write `update` into input[start:stop:step, ...] in place, autograd kept, and return `input`.

    RuntimeError if `update` does not have the shape of the slice.
    """
    where_ = _slices(slice_tup_list, input.dim())
    if tuple(input[where_].shape) != tuple(update.shape):
        raise RuntimeError(
            f"slice_update: update has the shape {tuple(update.shape)}, the slice"
            f" {tuple(input[where_].shape)}; they must agree"
        )
    input[where_] = update
    return input
