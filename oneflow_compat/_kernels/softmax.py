"""Scaled, masked softmax and its fusions with bias, lower triangle and dropout.

Softmax is over the last dimension.
"""

from __future__ import annotations

import torch

from . import _check, _ext, kernels
from .activation import dropout

__all__ = [
    "fused_bias_add_scale_mask_softmax_dropout",
    "fused_scale_mask_bias_softmax",
    "fused_scale_mask_softmax",
    "fused_scale_mask_softmax_dropout",
    "fused_scale_tril",
    "fused_scale_tril_softmax_mask_scale",
]


def _keep(name: str, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mask as bool after checking that it broadcasts to x."""
    shape, size = x.shape, mask.shape
    if shape != size and (
        len(size) > len(shape) or any(m not in (1, n) for m, n in zip(size[::-1], shape[::-1]))
    ):
        raise RuntimeError(f"{name}: the mask {tuple(size)} does not broadcast to the input {tuple(shape)}")
    return mask if mask.dtype is torch.bool else mask.bool()


def _kernel(
    x: torch.Tensor,
    mask: torch.Tensor | None,
    diagonal: int,
    scale: float,
    fill: float,
    p: float,
    generator: torch.Generator | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dropped, softmax) by the kernel; without dropout both are one tensor."""
    if mask is not None:
        mask = mask.expand(x.shape)
        mask = mask if mask.stride(-1) in (0, 1) else mask.contiguous()
    seed = _ext.seed(x, generator) if p > 0 else None
    y, dropped = kernels.run.masked_softmax(x, mask, diagonal, scale, fill, p, seed)
    return (dropped if p > 0 else y), y


def fused_scale_mask_softmax_ref(
    x: torch.Tensor, mask: torch.Tensor, fill_value: float, scale: float
) -> torch.Tensor:
    return torch.softmax(torch.where(mask, x * scale, fill_value), -1)


@_ext.follows_input
def fused_scale_mask_softmax(
    x: torch.Tensor, mask: torch.Tensor, *, fill_value: float = 0.0, scale: float = 1.0
) -> torch.Tensor:
    """softmax of `scale * x` where `mask` is true and of `fill_value` elsewhere. The mask broadcasts to x.

    The result has the shape and dtype of x. The softmax is over the last dimension.
    """
    mask = _keep("fused_scale_mask_softmax", x, mask)
    if x.ndim and _ext.use(x):
        return _kernel(x, mask, 0, scale, fill_value, 0.0, None)[1]
    return fused_scale_mask_softmax_ref(x, mask, fill_value, scale)


@_ext.follows_input
def fused_scale_mask_softmax_dropout(
    x: torch.Tensor,
    mask: torch.Tensor,
    *,
    fill_value: float = 0.0,
    scale: float = 1.0,
    p: float = 0.5,
    training: bool = True,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dropout(y), y) with y = fused_scale_mask_softmax(x, mask).

    Both results have the shape and dtype of x. The softmax is over the last dimension.
    """
    _check.rate("fused_scale_mask_softmax_dropout", p)
    if x.ndim and _ext.use(x):
        return _kernel(
            x,
            _keep("fused_scale_mask_softmax_dropout", x, mask),
            0,
            scale,
            fill_value,
            p if training else 0.0,
            generator,
        )
    y = fused_scale_mask_softmax(x, mask, fill_value=fill_value, scale=scale)
    return dropout(y, p, training, generator), y


@_ext.follows_input
def fused_bias_add_scale_mask_softmax_dropout(
    x: torch.Tensor,
    bias: torch.Tensor,
    mask: torch.Tensor,
    *,
    fill_value: float = 0.0,
    scale: float = 1.0,
    p: float = 0.5,
    training: bool = True,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dropout(y), y) with y = fused_scale_mask_softmax(x + bias, mask). The bias broadcasts to x.

    Both results have the shape and dtype of x. The softmax is over the last dimension.
    """
    return fused_scale_mask_softmax_dropout(
        x + bias, mask, fill_value=fill_value, scale=scale, p=p, training=training, generator=generator
    )


@_ext.follows_input
def fused_scale_mask_bias_softmax(
    x: torch.Tensor,
    mask: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale: float = 0.35355,
    inplace: bool = False,
) -> torch.Tensor:
    """softmax(scale * x + mask + bias): the mask is added here, not chosen by. `inplace` writes into x.

    The result has the shape and dtype of x. The softmax is over the last dimension.
    """
    y = x * scale + mask
    if bias is not None:
        y = y + bias
    y = torch.softmax(y, -1)
    return x.copy_(y) if inplace else y


def fused_scale_tril_ref(x: torch.Tensor, diagonal: int, fill_value: float, scale: float) -> torch.Tensor:
    keep = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril(diagonal)
    return torch.where(keep, x * scale, torch.as_tensor(fill_value, dtype=x.dtype, device=x.device))


@_ext.follows_input
def fused_scale_tril(
    x: torch.Tensor, diagonal: int = 0, fill_value: float = 0, scale: float = 1
) -> torch.Tensor:
    """`scale * x` on and below the `diagonal` of the last two dimensions, `fill_value` above it. x of 2 or
    more dimensions.

    RuntimeError for fewer dimensions.
    """
    if x.ndim < 2:
        raise RuntimeError(
            f"fused_scale_tril: the input must have 2 or more dimensions, found shape {tuple(x.shape)}"
        )
    if not x.is_floating_point() and (isinstance(scale, float) or isinstance(fill_value, float)):
        scale, fill_value = int(scale), int(fill_value)
    if _ext.use(x):
        return kernels.run.scale_tril(x, diagonal, scale, fill_value)
    return fused_scale_tril_ref(x, diagonal, fill_value, scale)


@_ext.follows_input
def fused_scale_tril_softmax_mask_scale(
    a: torch.Tensor,
    *,
    p: float = 0.5,
    diagonal: int,
    tril_scale_value: float,
    tril_fill_value: float = 0.0,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dropout(y), y) with y = softmax(fused_scale_tril(a)): causal attention weights. Always drops.

    Both results have the shape and dtype of a. The softmax is over the last dimension.
    """
    _check.rate("fused_scale_tril_softmax_mask_scale", p)
    if a.ndim > 1 and _ext.use(a):
        return _kernel(a, None, diagonal, tril_scale_value, tril_fill_value, p, generator)
    y = torch.softmax(fused_scale_tril(a, diagonal, tril_fill_value, tril_scale_value), -1)
    return dropout(y, p, True, generator), y
