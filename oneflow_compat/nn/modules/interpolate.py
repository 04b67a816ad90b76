"""Interpolation as a module."""

from __future__ import annotations

from torch import nn

from ..functional import interpolate

__all__ = ["Interpolate", "interpolate"]


class Interpolate(nn.Module):
    """forward(x): nn.functional.interpolate of x with the arguments given here."""

    def __init__(
        self, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None
    ):
        super().__init__()
        self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor = (
            size,
            scale_factor,
            mode,
            align_corners,
            recompute_scale_factor,
        )

    def forward(self, x):
        return interpolate(
            x, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )
