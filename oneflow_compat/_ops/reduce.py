"""Reductions, sorting and statistics that take more than torch's, or default otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._signature import REFUSED, or_else, spelled

__all__ = [
    "argmax",
    "argmin",
    "median",
    "prod",
    "std",
    "var",
    "norm",
    "quantile",
    "topk",
    "sort",
    "argsort",
    "unique",
    "bincount",
    "cumsum",
    "cumprod",
    "max",
    "min",
    "bernoulli",
    "multinomial",
    "in_top_k",
    "roc_auc_score",
]

_inf = float("inf")


@spelled("input=x axis=dim keepdims=keepdim")
def argmax(
    x: torch.Tensor,
    dim: int | None = None,
    keepdim: bool | None = None,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.argmax; a bool tensor is taken as uint8; `dtype` converts the result."""
    return _arg(torch.argmax, x, dim, keepdim, dtype, out)


@spelled("input=x axis=dim keepdims=keepdim")
def argmin(
    x: torch.Tensor,
    dim: int | None = None,
    keepdim: bool | None = None,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.argmin; a bool tensor is taken as uint8; `dtype` converts the result."""
    return _arg(torch.argmin, x, dim, keepdim, dtype, out)


def _arg(
    target: Callable[..., Any],
    x: torch.Tensor,
    dim: int | None,
    keepdim: bool | None,
    dtype: torch.dtype | None,
    out: torch.Tensor | None,
) -> torch.Tensor:
    if isinstance(x, torch.Tensor) and x.dtype is torch.bool:
        x = x.view(torch.uint8) if x.is_contiguous() else x.to(torch.uint8)
    y = target(x, dim, bool(keepdim)) if out is None else target(x, dim, bool(keepdim), out=out)
    return y if dtype is None else y.to(dtype)


@or_else(
    torch.median,
    "median",
    "(input, dim=-1, keepdim=False, *, out=None)",
    "torch.median; with `keepdim` alone the last dimension is reduced.",
)
def median(error: Exception, *args: Any, **kwargs: Any) -> Any:
    if "keepdim" in kwargs and "dim" not in kwargs and len(args) + ("input" in kwargs) == 1:
        return torch.median(*args, dim=-1, **kwargs)
    return REFUSED


def _extremum(name: str) -> Callable[..., Any]:
    target = getattr(torch, name)

    @or_else(
        target,
        name,
        "(input, dim=None, keepdim=False, *, other=None, out=None)",
        f"torch.{name}; `dim` may be True or False, counted as 1 or 0.",
    )
    def slow(error: Exception, *args: Any, **kwargs: Any) -> Any:
        if len(args) > 1 and type(args[1]) is bool:
            return target(args[0], int(args[1]), *args[2:], **kwargs)
        return REFUSED

    return slow


max, min = _extremum("max"), _extremum("min")


@or_else(
    torch.prod,
    "prod",
    "(x, dim=None, keepdim=False, *, dtype=None)",
    "torch.prod; `dim` may be a list, empty or None for all.",
)
def prod(
    error: Exception,
    x: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    input: Any = None,
    dtype: torch.dtype | None = None,
    axis: Any = None,
) -> Any:
    x, dim = (input if x is None else x), (axis if dim is None else dim)
    if not isinstance(x, torch.Tensor):
        return REFUSED
    if dtype is not None:
        x = x.to(dtype)
    dims = (
        range(x.dim())
        if dim is None or isinstance(dim, (list, tuple)) and not dim
        else [dim]
        if isinstance(dim, int)
        else dim
    )
    dims = sorted({d % x.dim() if x.dim() else d for d in dims}, reverse=True)
    for d in dims:
        x = torch.prod(x, d, keepdim)
    return x


def _spread(name: str) -> Callable[..., torch.Tensor]:
    target = getattr(torch, name)

    @spelled("input=x axis=dim keepdims=keepdim")
    def call(
        x: torch.Tensor,
        dim: int | Sequence[int] | bool | None = None,
        unbiased: bool | None = None,
        keepdim: bool | None = None,
        *,
        correction: int | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if type(dim) is bool:  # torch's std(x, unbiased)
            dim, unbiased = None, dim
        kwargs = {"keepdim": bool(keepdim)} if out is None else {"keepdim": bool(keepdim), "out": out}
        if correction is None:
            correction = 1 if unbiased is None or unbiased else 0
        elif unbiased is not None:
            raise TypeError(f"{name}() got both unbiased= and correction=; give one")
        if isinstance(x, torch.Tensor) and not x.is_floating_point() and not x.is_complex() and out is None:
            return target(x.to(torch.float64), dim, correction=correction, **kwargs).to(
                x.dtype if name == "std" else torch.get_default_dtype()
            )
        return target(x, dim, correction=correction, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (
        f"torch.{name} as (x, dim, unbiased, keepdim); `{name}(x, False)` is torch's unbiased=False. "
        "An integer tensor, which torch refuses, gives "
        + ("its own dtype (OneFlow truncates)." if name == "std" else "the default dtype.")
        + "\n\nTypeError for both `unbiased` and `correction`."
    )
    return call


std, var = _spread("std"), _spread("var")

_MATRIX_ORDS = (1, -1, _inf, -_inf)


@spelled("x=input axis=dim keepdims=keepdim")
def norm(
    input: torch.Tensor,
    p: float | str = "fro",
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """The norm of a vector, or of a matrix.

    As documented by OneFlow, p = 1, -1, inf, -inf of a 2-D tensor without `dim`, or over two dims, is the
    matrix norm (largest or smallest column or row sum), where torch flattens. Everything else is torch.norm.
    """
    if p in _MATRIX_ORDS and (
        input.dim() == 2 if dim is None else isinstance(dim, (tuple, list)) and len(dim) == 2
    ):
        return torch.linalg.matrix_norm(
            input, p, (-2, -1) if dim is None else tuple(dim), keepdim, dtype=dtype, out=out
        )
    return torch.norm(input, p, dim, keepdim, out=out, dtype=dtype)


@spelled("x=input axis=dim keepdims=keepdim")
def quantile(
    input: torch.Tensor,
    q: float | torch.Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
    ignore_nan: bool = False,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.quantile, or torch.nanquantile with `ignore_nan`; `interpolation` also by position, q also 0 or
    1.
    """
    q = float(q) if type(q) is int else q
    return (torch.nanquantile if ignore_nan else torch.quantile)(
        input, q, dim, keepdim, interpolation=interpolation, out=out
    )


@spelled("x=input axis=dim")
def topk(
    input: torch.Tensor,
    k: int,
    dim: int | None = None,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: torch.Tensor | None = None,
) -> torch.return_types.topk:
    """torch.topk; `dim=None` is the last; a bool tensor is accepted. Equal values: any order, as in torch."""
    if isinstance(input, torch.Tensor) and input.dtype is torch.bool:
        values, indices = torch.topk(input.to(torch.uint8), k, -1 if dim is None else dim, largest, sorted)
        return torch.return_types.topk((values.bool(), indices))
    return torch.topk(input, k, -1 if dim is None else dim, largest, sorted, out=out)


@spelled("x=input axis=dim")
def sort(
    input: torch.Tensor,
    dim: int | bool = -1,
    descending: bool = False,
    stable: bool | None = True,
    *,
    out: torch.Tensor | None = None,
) -> torch.return_types.sort:
    """torch.sort, stable as OneFlow's is; indices are int64."""
    if type(dim) is bool:  # torch's sort(x, descending) of the last dimension
        dim, descending = -1, bool(dim)
    return torch.sort(
        input, stable=True if stable is None else stable, dim=dim, descending=descending, out=out
    )


@spelled("x=input axis=dim")
def argsort(
    input: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool = True
) -> torch.Tensor:
    """torch.argsort, stable as OneFlow's is; indices are int64."""
    return torch.argsort(input, dim=dim, descending=descending, stable=stable)


@spelled("x=input")
def unique(
    input: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dtype: torch.dtype | int | None = None,
    *,
    dim: int | None = None,
) -> torch.Tensor | Any:
    """torch.unique; without `sorted` in order of appearance; `dtype` of the inverse and the counts (int64
    unless given; OneFlow: int32).
    """
    if dtype is not None and not isinstance(dtype, torch.dtype):  # torch's fifth argument is dim
        dtype, dim = None, dtype
    if sorted or dim is not None:
        out = torch.unique(input, sorted, return_inverse, return_counts, dim)
    else:
        out = _by_appearance(input, return_inverse, return_counts)
    if dtype is None or isinstance(out, torch.Tensor):
        return out
    return (out[0], *(t.to(dtype) for t in out[1:]))


def _by_appearance(input: torch.Tensor, return_inverse: bool, return_counts: bool) -> torch.Tensor | Any:
    """The unique values, the first to appear first."""
    values, inverse, counts = torch.unique(input, True, True, True)
    first_index = torch.full_like(counts, input.numel())
    first_index.scatter_reduce_(
        0, inverse.flatten(), torch.arange(input.numel(), device=input.device), "amin"
    )
    order = first_index.argsort()
    out = (
        values[order],
        *([order.argsort()[inverse]] if return_inverse else []),
        *([counts[order]] if return_counts else []),
    )
    return out if len(out) > 1 else out[0]


@or_else(
    torch.bincount,
    "bincount",
    "(input, weights=None, minlength=0)",
    "torch.bincount; a bool tensor is accepted.",
)
def bincount(error: Exception, input: Any = None, *args: Any, x: Any = None, **kwargs: Any) -> Any:
    input = x if input is None else input
    if isinstance(input, torch.Tensor) and input.dtype is torch.bool:
        return torch.bincount(input.to(torch.uint8), *args, **kwargs)
    return REFUSED


@spelled("x=input axis=dim")
def cumsum(
    input: torch.Tensor, dim: int, dtype: torch.dtype | None = None, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """torch.cumsum, `dtype` also by position."""
    return torch.cumsum(input, dim, dtype=dtype, out=out)


@spelled("x=input axis=dim")
def cumprod(
    input: torch.Tensor, dim: int, dtype: torch.dtype | None = None, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """torch.cumprod, `dtype` also by position."""
    return torch.cumprod(input, dim, dtype=dtype, out=out)


@spelled("x=input")
def bernoulli(
    input: torch.Tensor,
    p: float | None = None,
    *,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
    inplace: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.bernoulli; `dtype` converts the result, which otherwise has the input's; `inplace` writes into
    `input`.
    """
    if p is None:
        y = (
            torch.bernoulli(input, generator=generator, out=out)
            if out is not None
            else torch.bernoulli(input, generator=generator)
        )
    else:
        y = torch.bernoulli(input, p, generator=generator)
    if inplace:
        return input.copy_(y)
    return y if dtype is None else y.to(dtype)


@spelled("input=x")
def multinomial(
    x: torch.Tensor,
    num_samples: int,
    replacement: bool = False,
    generator: torch.Generator | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.multinomial, `generator` also by position."""
    return torch.multinomial(x, num_samples, replacement, generator=generator, out=out)


def in_top_k(targets: torch.Tensor, predictions: torch.Tensor, k: int) -> torch.Tensor:
    """Return a bool tensor (N): whether each target is among the k largest of its row of predictions.

    `targets` has shape (N,), `predictions` (N, classes).

    Ties count for the target; a target out of range, or whose prediction is not finite, is not in the top k.
    RuntimeError for other shapes, and for targets that are not int32 or int64.
    """
    if targets.dtype not in (torch.int32, torch.int64) or not predictions.is_floating_point():
        raise RuntimeError(
            f"in_top_k: targets must be int32 or int64 and predictions floating, found {targets.dtype} and"
            f" {predictions.dtype}"
        )
    if targets.dim() != 1 or predictions.dim() != 2 or len(targets) != len(predictions):
        raise RuntimeError(
            "in_top_k: targets must have the shape (N,) and predictions (N, classes), found"
            f" {tuple(targets.shape)} and {tuple(predictions.shape)}"
        )
    inside = (targets >= 0) & (targets < predictions.shape[1])
    value = predictions.gather(1, torch.where(inside, targets, 0).long().unsqueeze(1))
    larger = (predictions > value).sum(1)
    return inside & torch.isfinite(value.squeeze(1)) & (larger < k)


def roc_auc_score(label: torch.Tensor, pred: torch.Tensor) -> torch.Tensor:
    """Area under the ROC curve of scores `pred` for 0/1 `label` of the same number of elements; a float32
    tensor of one element.

    Equal scores share their average rank; nan when a class does not occur. OneFlow 0.9 is wrong for negative
    scores.

    RuntimeError if the numbers of elements differ.
    """
    label, score = label.reshape(-1), pred.reshape(-1).to(torch.float64)
    if label.numel() != score.numel():
        raise RuntimeError(
            f"roc_auc_score: label has {label.numel()} elements, pred {score.numel()}; they must agree"
        )
    positive = label.to(torch.float64)
    order, inverse, counts = torch.unique(score, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).to(torch.float64)
    rank = (last - (counts.to(torch.float64) - 1) / 2)[inverse]
    n1 = positive.sum()
    n0 = positive.numel() - n1
    return (((rank * positive).sum() - n1 * (n1 + 1) / 2) / (n1 * n0)).to(torch.float32).reshape(1)
