"""Activations that OneFlow has beyond torch's, and activations fused with a bias, a product or dropout."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from . import _check, _ext, kernels, references

__all__ = [
    "bias_add",
    "fast_gelu",
    "fused_bias_add_dropout",
    "fused_bias_add_gelu",
    "fused_fast_gelu_mul",
    "gelu_with_approximate",
    "quick_gelu",
    "square_relu",
]


def dropout(
    x: torch.Tensor, p: float, training: bool = True, generator: torch.Generator | None = None
) -> torch.Tensor:
    """torch's dropout, optionally with another generator."""
    if generator is None or not training or p in (0.0, 1.0):
        return F.dropout(x, p, training)
    return x * torch.empty_like(x).bernoulli_(1 - p, generator=generator).div_(1 - p)


def bias_add(x: torch.Tensor, bias: torch.Tensor, axis: int = 1) -> torch.Tensor:
    """x + bias along `axis`. x any shape, bias 1-d of that dimension's size."""
    axis = _check.bias_along("bias_add", x, bias, axis)
    return x + _check.along(bias, axis, x.ndim)


@_ext.follows_input
def fused_bias_add_gelu(a: torch.Tensor, b: torch.Tensor, *, axis: int) -> torch.Tensor:
    """gelu(a + b along `axis`), the exact (erf) gelu. a any shape, b 1-d."""
    axis = _check.bias_along("fused_bias_add_gelu", a, b, axis)
    if _ext.use(a, b):
        return kernels.run.bias_gelu(a, b, axis)
    return references.fused_bias_add_gelu_ref(a, b, axis)


def fused_bias_add_dropout_ref(
    a: torch.Tensor, b: torch.Tensor, p: float, axis: int, generator: torch.Generator | None = None
) -> torch.Tensor:
    return dropout(a + _check.along(b, axis, a.ndim), p, True, generator)


@_ext.follows_input
def fused_bias_add_dropout(
    a: torch.Tensor, b: torch.Tensor, *, p: float = 0.5, axis: int, generator: torch.Generator | None = None
) -> torch.Tensor:
    """dropout(a + b along `axis`): always drops, whatever the module's mode (OneFlow's rule).

    `b` has shape (a.shape[axis],); the result has the shape and dtype of a.
    """
    _check.rate("fused_bias_add_dropout", p)
    axis = _check.bias_along("fused_bias_add_dropout", a, b, axis)
    if p > 0 and _ext.use(a, b):
        return kernels.run.bias_dropout(a, b, axis, p, _ext.seed(a, generator))
    return fused_bias_add_dropout_ref(a, b, p, axis, generator)


def fast_gelu(x: torch.Tensor) -> torch.Tensor:
    """The tanh approximation of gelu.

    The result has the shape and dtype of x.
    """
    return F.gelu(x, approximate="tanh")


@_ext.follows_input
def fused_fast_gelu_mul(x: torch.Tensor, multiplier: torch.Tensor) -> torch.Tensor:
    """fast_gelu(x) * multiplier, same shape and dtype.

    RuntimeError for a multiplier of another shape or dtype.
    """
    if x.shape != multiplier.shape:
        raise RuntimeError(
            f"fused_fast_gelu_mul: x and multiplier must have one shape, found {tuple(x.shape)} and"
            f" {tuple(multiplier.shape)}"
        )
    if _ext.use(x, multiplier):
        return kernels.point("fast_gelu_mul", (x, multiplier), 1)[0]
    return references.fused_fast_gelu_mul_ref(x, multiplier)


@_ext.follows_input
def quick_gelu(x: torch.Tensor) -> torch.Tensor:
    """x * sigmoid(1.702 x).

    The result has the shape and dtype of x.
    """
    return kernels.point("quick_gelu", (x,), 1)[0] if _ext.use(x) else references.quick_gelu_ref(x)


@_ext.follows_input
def square_relu(x: torch.Tensor) -> torch.Tensor:
    """relu(x) squared.

    The result has the shape and dtype of x.
    """
    return kernels.point("square_relu", (x,), 1)[0] if _ext.use(x) else references.square_relu_ref(x)


def gelu_with_approximate(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """gelu, `approximate` "none" (erf) or "tanh".

    The result has the shape and dtype of `x`. RuntimeError for another `approximate`.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError(
            "gelu_with_approximate: the approximate argument should be 'none' or 'tanh', found"
            f" {approximate!r}"
        )
    return F.gelu(x, approximate=approximate)
