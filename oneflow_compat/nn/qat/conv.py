"""Convolutions whose input and weight are quantized and multiplied back in the forward pass."""

from __future__ import annotations

import torch
from torch import nn

from ..modules.quantization import FakeQuantization, MinMaxObserver, MovingAverageMinMaxObserver

__all__ = ["QatConv1d", "QatConv2d", "QatConv3d", "get_conv_fake_quantized", "init_conv_fake_quants"]


def get_conv_fake_quantized(
    input, input_observer, current_train_step, weight, weight_observer, fake_quantizer
):
    """(input, weight), each through its observer and the quantizer."""
    return (
        fake_quantizer(input, *input_observer(input, current_train_step)),
        fake_quantizer(weight, *weight_observer(weight)),
    )


def init_conv_fake_quants(
    self,
    quantization_formula="google",
    quantization_bit=8,
    quantization_scheme="symmetric",
    weight_quant_per_layer=True,
    input_quant_momentum=0.95,
):
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
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        quantization_formula="google",
        quantization_bit=8,
        quantization_scheme="symmetric",
        weight_quant_per_layer=True,
        input_quant_momentum=0.95,
    ):
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

    def forward(self, x):
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
    __doc__ = _QatConv.__doc__.format("Conv1d")


class QatConv2d(_QatConv, nn.Conv2d):
    __doc__ = _QatConv.__doc__.format("Conv2d")


class QatConv3d(_QatConv, nn.Conv3d):
    __doc__ = _QatConv.__doc__.format("Conv3d")
