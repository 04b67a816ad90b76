"""Sampling grids and resizing: defaults and arguments that torch lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from .._signature import parse

__all__ = ["grid_sample", "affine_grid", "interpolate_like", "upsample"]


def grid_sample(
    input: torch.Tensor,
    grid: torch.Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = False,
) -> torch.Tensor:
    """Samples of `input` at the points `grid`; differs from torch's: `align_corners` is False by default,
    without a warning.
    """
    return F.grid_sample(input, grid, mode, padding_mode, bool(align_corners))


def affine_grid(theta: torch.Tensor, size: Sequence[int], align_corners: bool | None = False) -> torch.Tensor:
    """Grid of an affine transform; differs from torch's: `align_corners` is False by default, without a
    warning.
    """
    return F.affine_grid(theta, size, bool(align_corners))


def interpolate_like(
    input: torch.Tensor, like: torch.Tensor, mode: str = "nearest", align_corners: bool | None = None
) -> torch.Tensor:
    """`input` resized to the spatial size of `like` (not in torch).

    Both have shape (N, C, ...); the result keeps N, C and the dtype of `input`.
    """
    return F.interpolate(input, size=tuple(like.shape[2:]), mode=mode, align_corners=align_corners)


def upsample(*args: Any, **kwargs: Any) -> torch.Tensor | Any:
    """An nn.Upsample module, as OneFlow's; with a tensor first (or `input=`) torch's function, which resizes
    it.
    """
    if "input" in kwargs or args and isinstance(args[0], torch.Tensor):
        return F.upsample(*args, **kwargs)
    return torch.nn.Upsample(*args, **kwargs)


upsample.__signature__ = parse(
    "(size=None, scale_factor=None, mode='nearest', align_corners=None, **torch_keywords)"
)
