"""Activation functions OneFlow offers at top level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch.nn import functional as F

from ._signature import need_tensors, spelled
from .nn.activation import overwrite

__all__ = [
    "gelu",
    "mish",
    "silu",
    "softplus",
    "softsign",
    "softshrink",
    "softmax",
    "log_softmax",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "stft",
    "implicit_dim",
]


@spelled("input=x")
def gelu(x: torch.Tensor, approximate: Literal["none", "tanh"] = "none") -> torch.Tensor:
    """torch.nn.functional.gelu; approximate is "none" or "tanh"."""
    return F.gelu(x, approximate=approximate)


@spelled("input=x")
def mish(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """torch.nn.functional.mish."""
    return F.mish(x, inplace=inplace)


@spelled("input=x")
def silu(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """torch.nn.functional.silu."""
    return F.silu(x, inplace=inplace)


@spelled("input=x")
def softplus(x: torch.Tensor, beta: float = 1.0, threshold: float = 20.0) -> torch.Tensor:
    """torch.nn.functional.softplus."""
    return F.softplus(x, beta, threshold)


@spelled("input=x")
def softsign(x: torch.Tensor) -> torch.Tensor:
    """x / (1 + |x|).

    torch.nn.functional.softsign; the result has the shape and dtype of x.
    """
    return F.softsign(x)


@spelled("input=x lambd=alpha")
def softshrink(x: torch.Tensor, alpha: float = 0.5, inplace: bool = False) -> torch.Tensor:
    """torch.nn.functional.softshrink; alpha is torch's lambd."""
    return overwrite(x, F.softshrink, alpha) if inplace else F.softshrink(x, alpha)


def implicit_dim(x: torch.Tensor) -> int:
    """The dimension softmax takes when none is given: 0 for 0-, 1- and 3-dimensional tensors, else 1."""
    return 0 if x.dim() in (0, 1, 3) else 1


@spelled("input=x axis=dim")
def softmax(
    x: torch.Tensor,
    dim: int | None = None,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.softmax; without `dim` it is 0 for 0-, 1- and 3-dimensional tensors, else 1."""
    dim = implicit_dim(x) if dim is None else dim
    return torch.softmax(x, dim, dtype=dtype) if out is None else torch.softmax(x, dim, dtype=dtype, out=out)


@spelled("input=x axis=dim")
def log_softmax(
    x: torch.Tensor,
    dim: int | None = None,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.log_softmax; without `dim` it is 0 for 0-, 1- and 3-dimensional tensors, else 1."""
    dim = implicit_dim(x) if dim is None else dim
    return (
        torch.log_softmax(x, dim, dtype=dtype)
        if out is None
        else torch.log_softmax(x, dim, dtype=dtype, out=out)
    )


def adaptive_avg_pool2d(
    input: torch.Tensor, output_size: int | Sequence[int | None], data_format: str | None = None
) -> torch.Tensor:
    """torch.nn.functional.adaptive_avg_pool2d; data_format "channels_last" takes and gives (N, H, W, C)."""
    need_tensors("adaptive_avg_pool2d", input=input)
    if data_format in ("channels_last", "NHWC"):
        return F.adaptive_avg_pool2d(input.movedim(-1, -3), output_size).movedim(-3, -1)
    return F.adaptive_avg_pool2d(input, output_size)


def adaptive_avg_pool3d(input: torch.Tensor, output_size: int | Sequence[int | None]) -> torch.Tensor:
    """torch.nn.functional.adaptive_avg_pool3d."""
    need_tensors("adaptive_avg_pool3d", input=input)
    return F.adaptive_avg_pool3d(input, output_size)


def stft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> torch.Tensor:
    """torch.stft; by default the result for real numbers is real with a last dimension of 2, as in OneFlow
    (torch wants return_complex given).
    """
    extra = {} if align_to_window is None else {"align_to_window": align_to_window}
    y = torch.stft(
        input,
        n_fft,
        hop_length,
        win_length,
        window,
        center,
        pad_mode,
        normalized,
        onesided,
        return_complex=True,
        **extra,
    )
    if return_complex is None:
        return_complex = input.is_complex() or (window is not None and window.is_complex())
    return y if return_complex else torch.view_as_real(y)
