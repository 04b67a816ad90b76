"""Reductions under OneFlow's raw signatures, whole and in the two stages of a split tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _check

__all__ = [
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_max_device_stage",
    "reduce_max_global_stage",
    "reduce_mean",
    "reduce_min",
    "reduce_min_device_stage",
    "reduce_min_global_stage",
    "reduce_nansum",
    "reduce_prod",
    "reduce_sum",
    "reduce_sum_like",
]


def _dims(dim: int | Sequence[int] | None) -> tuple[int, ...]:
    return tuple(range(0)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)


def _reduction(name: str, whole: Callable[..., torch.Tensor], doc: str) -> Callable[..., torch.Tensor]:
    def reduce(
        x: torch.Tensor,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        dtype: torch.dtype | None = None,
        axis: int | Sequence[int] | None = None,
    ) -> torch.Tensor:
        dims = _dims(dim if axis is None else axis)
        keyword = {} if dtype is None else {"dtype": dtype}
        return whole(x, dims or tuple(range(x.ndim)), keepdim, **keyword)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = doc + " over the dimensions given, all of them by default."
    return reduce


def _prod(x: torch.Tensor, dims: Sequence[int], keepdim: bool, **keyword: Any) -> torch.Tensor:
    for d in sorted((d % x.ndim for d in dims), reverse=True):
        x = x.prod(d, keepdim, **keyword)
    return x


reduce_sum = _reduction("reduce_sum", torch.sum, "Sum")
reduce_nansum = _reduction("reduce_nansum", torch.nansum, "Sum of what is not nan,")
reduce_mean = _reduction("reduce_mean", torch.mean, "Mean")
reduce_prod = _reduction("reduce_prod", _prod, "Product")
reduce_max = _reduction("reduce_max", torch.amax, "Largest value")
reduce_min = _reduction("reduce_min", torch.amin, "Smallest value")
reduce_all = _reduction("reduce_all", torch.all, "All")
reduce_any = _reduction("reduce_any", torch.any, "Any")


def _device_stage(
    extreme: Callable[..., torch.Tensor],
) -> Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    def stage(
        input: torch.Tensor | None = None, axis: Sequence[int] = (), **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = _check.tensor_in("reduce_device_stage", input, kwargs)
        value = extreme(x, tuple(axis), True)
        mask = x == value
        return value, mask, mask.sum(tuple(axis), keepdim=True).int()

    stage.__doc__ = (
        "(extreme with kept dimensions, its mask, its count int32): the local half of a reduction."
    )
    return stage


def _global_stage(extreme: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    def stage(
        input: torch.Tensor | None = None,
        device_count: torch.Tensor | None = None,
        axis: Sequence[int] = (),
        keepdims: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = _check.tensor_in("reduce_global_stage", input, kwargs)
        value = extreme(x, tuple(axis), True)
        return (value if keepdims else value.squeeze(tuple(axis))), x == value

    stage.__doc__ = "(extreme, mask of where it is): the joining half of a split reduction."
    return stage


reduce_max_device_stage, reduce_min_device_stage = _device_stage(torch.amax), _device_stage(torch.amin)
reduce_max_global_stage, reduce_min_global_stage = _global_stage(torch.amax), _global_stage(torch.amin)


def reduce_sum_like(
    input: torch.Tensor | None = None,
    like: torch.Tensor | None = None,
    axis: Sequence[int] = (),
    **kwargs: Any,
) -> torch.Tensor:
    """Sum over `axis`, in the shape of `like`. OneFlow calls the first argument `in`."""
    x = _check.tensor_in("reduce_sum_like", input, kwargs)
    like = _check.needed("reduce_sum_like", "like", like)
    return (x.sum(tuple(axis)) if len(axis) else x).reshape(like.shape)
