"""Activation functions OneFlow offers at top level."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ._signature import need_tensors, spelled
from .nn_activation import overwrite

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
def gelu(x, approximate="none"):
    """torch.nn.functional.gelu; approximate is "none" or "tanh"."""
    return F.gelu(x, approximate=approximate)


@spelled("input=x")
def mish(x, inplace=False):
    """torch.nn.functional.mish."""
    return F.mish(x, inplace=inplace)


@spelled("input=x")
def silu(x, inplace=False):
    """torch.nn.functional.silu."""
    return F.silu(x, inplace=inplace)


@spelled("input=x")
def softplus(x, beta=1.0, threshold=20.0):
    """torch.nn.functional.softplus."""
    return F.softplus(x, beta, threshold)


@spelled("input=x")
def softsign(x):
    """x / (1 + |x|).

    torch.nn.functional.softsign; the result has the shape and dtype of x.
    """
    return F.softsign(x)


@spelled("input=x lambd=alpha")
def softshrink(x, alpha=0.5, inplace=False):
    """torch.nn.functional.softshrink; alpha is torch's lambd."""
    return overwrite(x, F.softshrink, alpha) if inplace else F.softshrink(x, alpha)


def implicit_dim(x) -> int:
    """The dimension softmax takes when none is given: 0 for 0-, 1- and 3-dimensional tensors, else 1."""
    return 0 if x.dim() in (0, 1, 3) else 1


@spelled("input=x axis=dim")
def softmax(x, dim=None, dtype=None, *, out=None):
    """torch.softmax; without `dim` it is 0 for 0-, 1- and 3-dimensional tensors, else 1."""
    dim = implicit_dim(x) if dim is None else dim
    return torch.softmax(x, dim, dtype=dtype) if out is None else torch.softmax(x, dim, dtype=dtype, out=out)


@spelled("input=x axis=dim")
def log_softmax(x, dim=None, dtype=None, *, out=None):
    """torch.log_softmax; without `dim` it is 0 for 0-, 1- and 3-dimensional tensors, else 1."""
    dim = implicit_dim(x) if dim is None else dim
    return (
        torch.log_softmax(x, dim, dtype=dtype)
        if out is None
        else torch.log_softmax(x, dim, dtype=dtype, out=out)
    )


def adaptive_avg_pool2d(input, output_size, data_format=None):
    """torch.nn.functional.adaptive_avg_pool2d; data_format "channels_last" takes and gives (N, H, W, C)."""
    need_tensors("adaptive_avg_pool2d", input=input)
    if data_format in ("channels_last", "NHWC"):
        return F.adaptive_avg_pool2d(input.movedim(-1, -3), output_size).movedim(-3, -1)
    return F.adaptive_avg_pool2d(input, output_size)


def adaptive_avg_pool3d(input, output_size):
    """torch.nn.functional.adaptive_avg_pool3d."""
    need_tensors("adaptive_avg_pool3d", input=input)
    return F.adaptive_avg_pool3d(input, output_size)


def stft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    pad_mode="reflect",
    normalized=False,
    onesided=None,
    return_complex=None,
    align_to_window=None,
):
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
