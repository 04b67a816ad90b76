"""PixelShuffle with different factors for height and width."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import nn

from ... import _bind
from ._same import SameAsTorch

__all__ = ["PixelShuffle", "PixelShufflev2"]


class PixelShuffle(nn.PixelShuffle, metaclass=SameAsTorch):
    """Channels to pixels: (..., C * h * w, H, W) -> (..., C, H * h, W * w).

    Either `upscale_factor` or both other factors are given, else ValueError.
    """

    _torch_class = nn.PixelShuffle
    _blank = (1,)
    _extras = {
        name: operator.attrgetter("upscale_factor") for name in ("h_upscale_factor", "w_upscale_factor")
    }

    def __init__(
        self,
        upscale_factor: int | None = None,
        h_upscale_factor: int | None = None,
        w_upscale_factor: int | None = None,
    ) -> None:
        both = h_upscale_factor is not None and w_upscale_factor is not None
        either = h_upscale_factor is not None or w_upscale_factor is not None
        if (upscale_factor is None) != both or (upscale_factor is not None and either):
            raise ValueError(
                "PixelShuffle needs upscale_factor, or both h_upscale_factor and w_upscale_factor, found "
                f"{upscale_factor}, {h_upscale_factor} and {w_upscale_factor}"
            )
        if both and h_upscale_factor == w_upscale_factor:
            upscale_factor = h_upscale_factor
        super().__init__(upscale_factor)
        self.h_upscale_factor: Any
        self.w_upscale_factor: Any
        self.h_upscale_factor = upscale_factor if h_upscale_factor is None else h_upscale_factor
        self.w_upscale_factor = upscale_factor if w_upscale_factor is None else w_upscale_factor
        if not (self.h_upscale_factor > 0 and self.w_upscale_factor > 0):
            raise ValueError(
                f"PixelShuffle's factors must be positive, found {self.h_upscale_factor} and"
                f" {self.w_upscale_factor}"
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.upscale_factor is not None and input.shape[0]:  # torch's has no gradient for an empty batch
            return super().forward(input)
        h, w = self.h_upscale_factor, self.w_upscale_factor
        *batch, channels, height, width = input.shape
        if channels % (h * w):
            raise ValueError(
                f"PixelShuffle({h} x {w}) needs a multiple of {h * w} channels, found {channels} (shape"
                f" {tuple(input.shape)})"
            )
        n = len(batch)
        blocks = input.reshape(*batch, channels // (h * w), h, w, height, width)
        blocks = blocks.permute(*range(n + 1), n + 3, n + 1, n + 4, n + 2)
        return blocks.reshape(*batch, channels // (h * w), height * h, width * w)

    def extra_repr(self) -> str:
        if self.upscale_factor is not None:
            return super().extra_repr()
        return f"h_upscale_factor={self.h_upscale_factor}, w_upscale_factor={self.w_upscale_factor}"


PixelShufflev2 = PixelShuffle  # the class's name in real OneFlow, found in its pickles

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.pixelshuffle", classes=True)
