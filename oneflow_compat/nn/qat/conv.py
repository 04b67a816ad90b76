"""Convolutions whose input and weight are quantized and multiplied back in the forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from ..modules.quantization import FakeQuantization, MinMaxObserver, MovingAverageMinMaxObserver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = ["QatConv1d", "QatConv2d", "QatConv3d", "get_conv_fake_quantized", "init_conv_fake_quants"]


def get_conv_fake_quantized(
    input: torch.Tensor,
    input_observer: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    current_train_step: torch.Tensor,
    weight: torch.Tensor,
    weight_observer: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    fake_quantizer: Callable[..., torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """(input, weight), each through its observer and the quantizer."""
    return (
        fake_quantizer(input, *input_observer(input, current_train_step)),
        fake_quantizer(weight, *weight_observer(weight)),
    )


def init_conv_fake_quants(
    self: Any,
    quantization_formula: Literal["google", "cambricon"] = "google",
    quantization_bit: int = 8,
    quantization_scheme: Literal["symmetric", "affine"] = "symmetric",
    weight_quant_per_layer: bool = True,
    input_quant_momentum: float = 0.95,
) -> None:
    """Give the convolution `self` its observers, quantizer and the buffer current_train_step."""
    how = (quantization_formula, quantization_bit, quantization_scheme)
    self.input_min_max_observer = MovingAverageMinMaxObserver(1, *how, input_quant_momentum)
    self.register_buffer("current_train_step", torch.zeros(1, dtype=torch.int64))
    self.weight_min_max_observer = MinMaxObserver(*how, weight_quant_per_layer)
    self.fake_quantizer = FakeQuantization(*how)


class _QatConv:
    """{0} with fake-quantized input and weight.

    The input's range is a running one, the weight's that of the moment.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        quantization_formula: Literal["google", "cambricon"] = "google",
        quantization_bit: int = 8,
        quantization_scheme: Literal["symmetric", "affine"] = "symmetric",
        weight_quant_per_layer: bool = True,
        input_quant_momentum: float = 0.95,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode
        )
        init_conv_fake_quants(
            self,
            quantization_formula,
            quantization_bit,
            quantization_scheme,
            weight_quant_per_layer,
            input_quant_momentum,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, weight = get_conv_fake_quantized(
            x,
            self.input_min_max_observer,
            self.current_train_step,
            self.weight,
            self.weight_min_max_observer,
            self.fake_quantizer,
        )
        return self._conv_forward(x, weight, self.bias)


class QatConv1d(_QatConv, nn.Conv1d):
    __doc__ = str(_QatConv.__doc__).format("Conv1d")


class QatConv2d(_QatConv, nn.Conv2d):
    __doc__ = str(_QatConv.__doc__).format("Conv2d")


class QatConv3d(_QatConv, nn.Conv3d):
    __doc__ = str(_QatConv.__doc__).format("Conv3d")
