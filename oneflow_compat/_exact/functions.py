"""Top-level functions with OneFlow 0.9's quirks; each takes the present function and returns the other."""

from __future__ import annotations

import functools

import torch

from .operators import _category, aligned


def _same_name(function, original):
    return functools.wraps(original, updated=())(function)


def binary(original):
    """A 0-d tensor never raises the category of an N-d one."""

    def call(*args, **kwargs):
        if len(args) >= 2:
            args = (*aligned(args[0], args[1]), *args[2:])
        return original(*args, **kwargs)

    return _same_name(call, original)


def to_float(original):
    """float32 for integer and bool tensors."""

    def call(input=None, *args, x=None, **kwargs):
        input = x if input is None else input
        return original(input.float() if _category(input) < 2 else input, *args, **kwargs)

    return _same_name(call, original)


def floor_divide(original):
    """Integers truncate."""
    return _same_name(
        lambda *args, **kwargs: original(*args, **kwargs) if kwargs or len(args) != 2 else args[0] // args[1],
        original,
    )


def pow(original):
    """Integer tensors give float32."""
    return _same_name(
        lambda *args, **kwargs: original(*args, **kwargs) if kwargs or len(args) != 2 else args[0] ** args[1],
        original,
    )


def int32_indices(original):
    """int32 instead of int64 indices; a dtype that is asked for is kept."""

    def call(*args, **kwargs):
        out = original(*args, **kwargs)
        if kwargs.get("dtype") is not None or any(isinstance(a, torch.dtype) for a in args):
            return out
        if isinstance(out, torch.Tensor):
            return out.int() if original.__name__ != "unique" else out
        result, *rest = out
        rest = [t.int() for t in rest]
        return type(out)((result, *rest)) if type(out) is not tuple else (result, *rest)

    return _same_name(call, original)


def topk(original):
    """Equal values: the lowest index first."""

    def topk(input, k, dim=None, largest=True, sorted=True):
        dim = -1 if dim is None else dim
        values, indices = torch.sort(input, dim=dim, descending=largest, stable=True)
        return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))

    return topk


def keeps_dtype(original):
    """prod of a small integer dtype keeps it."""

    def call(x, *args, **kwargs):
        out = original(x, *args, **kwargs)
        return out.to(x.dtype) if kwargs.get("dtype") is None and _category(x) == 1 else out

    return _same_name(call, original)


def gives_bool(original):
    """any and all of uint8 are bool."""
    return _same_name(lambda *args, **kwargs: original(*args, **kwargs).bool(), original)


def clamp(original):
    """An integer tensor keeps its dtype; the bounds are truncated."""

    def call(input, min=None, max=None, **kwargs):
        if _category(input) == 1:
            min, max = (int(b) if isinstance(b, float) else b for b in (min, max))
        return original(input, min, max, **kwargs)

    return _same_name(call, original)


def where(original):
    """A Python float is float64 and decides; two of them give float32."""

    def where(condition, x=None, y=None, **kwargs):
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


def quantile(original):
    """With a number and a dim the result is float64."""

    def quantile(input, q, dim=None, *args, **kwargs):
        out = original(input, q, dim, *args, **kwargs)
        return out.double() if isinstance(q, float) and dim is not None else out

    return _same_name(quantile, original)


def normalize(original):
    """x / sqrt(max(sum x^2, eps)) for p = 2."""

    def normalize(input, p=2.0, dim=1, eps=1e-12, *args, **kwargs):
        if p != 2:
            return original(input, p, dim, eps, *args, **kwargs)
        return input / input.square().sum(dim, keepdim=True).clamp_min(eps).sqrt()

    return _same_name(normalize, original)
