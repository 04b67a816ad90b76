"""Top-level functions with OneFlow 0.9's quirks; each takes the present function and returns the other."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .operators import _category, aligned


def _same_name(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(original, updated=())(function)


def binary(original: Callable[..., Any]) -> Callable[..., Any]:
    """A 0-d tensor never raises the category of an N-d one."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) >= 2:
            args = (*aligned(args[0], args[1]), *args[2:])
        return original(*args, **kwargs)

    return _same_name(call, original)


def to_float(original: Callable[..., Any]) -> Callable[..., Any]:
    """float32 for integer and bool tensors."""

    def call(input: Any = None, *args: Any, x: Any = None, **kwargs: Any) -> Any:
        input = x if input is None else input
        return original(input.float() if _category(input) < 2 else input, *args, **kwargs)

    return _same_name(call, original)


def floor_divide(original: Callable[..., Any]) -> Callable[..., Any]:
    """Integers truncate."""
    return _same_name(
        lambda *args, **kwargs: original(*args, **kwargs) if kwargs or len(args) != 2 else args[0] // args[1],
        original,
    )


def pow(original: Callable[..., Any]) -> Callable[..., Any]:
    """Integer tensors give float32."""
    return _same_name(
        lambda *args, **kwargs: original(*args, **kwargs) if kwargs or len(args) != 2 else args[0] ** args[1],
        original,
    )


def int32_indices(original: Callable[..., Any]) -> Callable[..., Any]:
    """int32 instead of int64 indices; a dtype that is asked for is kept."""

    def call(*args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        if kwargs.get("dtype") is not None or any(isinstance(a, torch.dtype) for a in args):
            return out
        if isinstance(out, torch.Tensor):
            return out.int() if original.__name__ != "unique" else out
        result, *rest = out
        rest = [t.int() for t in rest]
        return type(out)((result, *rest)) if type(out) is not tuple else (result, *rest)

    return _same_name(call, original)


def topk(original: Callable[..., Any]) -> Callable[..., Any]:
    """Equal values: the lowest index first."""

    def topk(
        input: torch.Tensor, k: int, dim: int | None = None, largest: bool = True, sorted: bool = True
    ) -> Any:
        dim = -1 if dim is None else dim
        values, indices = torch.sort(input, dim=dim, descending=largest, stable=True)
        return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))

    return topk


def keeps_dtype(original: Callable[..., Any]) -> Callable[..., Any]:
    """prod of a small integer dtype keeps it."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(x, *args, **kwargs)
        return out.to(x.dtype) if kwargs.get("dtype") is None and _category(x) == 1 else out

    return _same_name(call, original)


def gives_bool(original: Callable[..., Any]) -> Callable[..., Any]:
    """any and all of uint8 are bool."""
    return _same_name(lambda *args, **kwargs: original(*args, **kwargs).bool(), original)


def clamp(original: Callable[..., Any]) -> Callable[..., Any]:
    """An integer tensor keeps its dtype; the bounds are truncated."""

    def call(input: Any, min: Any = None, max: Any = None, **kwargs: Any) -> Callable[..., Any]:
        if _category(input) == 1:
            min, max = (int(b) if isinstance(b, float) else b for b in (min, max))
        return original(input, min, max, **kwargs)

    return _same_name(call, original)


def where(original: Callable[..., Any]) -> Callable[..., Any]:
    """A Python float is float64 and decides; two of them give float32."""

    def where(condition: torch.Tensor, x: Any = None, y: Any = None, **kwargs: Any) -> Any:
        if x is None and y is None:
            return original(condition, **kwargs)
        out = original(condition, x, y, **kwargs)
        if isinstance(x, float) and isinstance(y, float):
            return out.float()
        return (
            original(condition, *(t.double() if isinstance(t, torch.Tensor) else t for t in (x, y)))
            if isinstance(x, float) or isinstance(y, float)
            else out
        )

    return _same_name(where, original)


def quantile(original: Callable[..., Any]) -> Callable[..., Any]:
    """With a number and a dim the result is float64."""

    def quantile(
        input: Any, q: float | torch.Tensor, dim: int | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        out = original(input, q, dim, *args, **kwargs)
        return out.double() if isinstance(q, float) and dim is not None else out

    return _same_name(quantile, original)


def normalize(original: Callable[..., Any]) -> Callable[..., Any]:
    """x / sqrt(max(sum x^2, eps)) for p = 2."""

    def normalize(
        input: torch.Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        if p != 2:
            return original(input, p, dim, eps, *args, **kwargs)
        return input / input.square().sum(dim, keepdim=True).clamp_min(eps).sqrt()

    return _same_name(normalize, original)
