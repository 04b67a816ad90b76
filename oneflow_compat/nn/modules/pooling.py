"""Pooling modules with `data_format`, and `divisor_override=0` for none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from ... import _bind
from ..._ops.nn.convolution import is_channels_last
from ..._ops.nn.pooling import adaptive_avg_pool2d, adaptive_max_pool2d
from ._same import SameAsTorch

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool2d", "AvgPool3d"]


class AdaptiveAvgPool2d(nn.AdaptiveAvgPool2d, metaclass=SameAsTorch):
    """torch's AdaptiveAvgPool2d; `data_format="channels_last"`: the input is (N, H, W, C)."""

    _torch_class = nn.AdaptiveAvgPool2d
    _blank = (1,)
    _extras = {"data_format": "channels_first"}

    def __init__(
        self,
        output_size: int | Sequence[int | None],
        data_format: Literal["channels_first", "channels_last"] | None = None,
    ) -> None:
        super().__init__(output_size)
        is_channels_last(data_format)
        self.data_format = data_format or "channels_first"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return adaptive_avg_pool2d(x, self.output_size, self.data_format)


class AdaptiveMaxPool2d(nn.AdaptiveMaxPool2d, metaclass=SameAsTorch):
    """torch's AdaptiveMaxPool2d; `data_format="channels_last"`: the input is (N, H, W, C)."""

    _torch_class = nn.AdaptiveMaxPool2d
    _blank = (1,)
    _extras = {"data_format": "channels_first"}

    def __init__(
        self,
        output_size: int | Sequence[int | None],
        return_indices: bool = False,
        data_format: Literal["channels_first", "channels_last"] | None = None,
    ) -> None:
        super().__init__(output_size, return_indices)
        is_channels_last(data_format)
        self.data_format = data_format or "channels_first"

    def forward(self, x: torch.Tensor) -> Any:
        return adaptive_max_pool2d(x, self.output_size, self.return_indices, self.data_format)


class AvgPool2d(nn.AvgPool2d, metaclass=SameAsTorch):
    """torch's AvgPool2d; `divisor_override=0` means none."""

    _torch_class = nn.AvgPool2d
    _blank = (1,)

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = 0,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override or None)


class AvgPool3d(nn.AvgPool3d, metaclass=SameAsTorch):
    """torch's AvgPool3d; `divisor_override=0` means none."""

    _torch_class = nn.AvgPool3d
    _blank = (1,)

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = 0,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override or None)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.pooling", classes=True)
