"""Observers and fake quantization as modules (formulas in `_kernels/quantization.py`)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from ..._kernels import quantization as Q

__all__ = ["FakeQuantization", "MinMaxObserver", "MovingAverageMinMaxObserver", "Quantization"]


class _Quantizer(nn.Module):
    def __init__(
        self,
        quantization_formula: Literal["google", "cambricon"] = "google",
        quantization_bit: int = 8,
        quantization_scheme: Literal["symmetric", "affine"] = "symmetric",
    ) -> None:
        super().__init__()
        self.quantization_formula, self.quantization_bit, self.quantization_scheme = (
            quantization_formula,
            quantization_bit,
            quantization_scheme,
        )

    def _how(self) -> tuple[str, int, str]:
        return self.quantization_formula, self.quantization_bit, self.quantization_scheme


class MinMaxObserver(_Quantizer):
    """forward(x) -> (scale, zero point) of x's extremes, of the whole tensor or,
    per_layer_quantization=False, of each row of dimension 0.
    """

    def __init__(
        self,
        quantization_formula: Literal["google", "cambricon"] = "google",
        quantization_bit: int = 8,
        quantization_scheme: Literal["symmetric", "affine"] = "symmetric",
        per_layer_quantization: bool = True,
    ) -> None:
        super().__init__(quantization_formula, quantization_bit, quantization_scheme)
        self.per_layer_quantization = per_layer_quantization

    def forward(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return Q.min_max_observer(input, *self._how(), self.per_layer_quantization)


class MovingAverageMinMaxObserver(_Quantizer):
    """forward(x, current_train_step) -> (scale, zero point) of running extremes, updated in training up to
    step stop_update_after_iters.
    """

    moving_max: torch.Tensor
    moving_min: torch.Tensor

    def __init__(
        self,
        stop_update_after_iters: int = 1,
        quantization_formula: Literal["google", "cambricon"] = "google",
        quantization_bit: int = 8,
        quantization_scheme: Literal["symmetric", "affine"] = "symmetric",
        momentum: float = 0.95,
    ) -> None:
        super().__init__(quantization_formula, quantization_bit, quantization_scheme)
        self.stop_update_after_iters, self.momentum = stop_update_after_iters, momentum
        self.register_buffer("moving_max", torch.zeros(1))
        self.register_buffer("moving_min", torch.zeros(1))

    def reset_running_stats(self) -> None:
        """Forget the extremes."""
        self.moving_max.zero_()
        self.moving_min.zero_()

    def forward(
        self, input: torch.Tensor, current_train_step: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return Q.moving_average_min_max_observer(
            input,
            current_train_step,
            self.moving_max,
            self.moving_min,
            self.training,
            self.stop_update_after_iters,
            *self._how(),
            self.momentum,
        )


class FakeQuantization(_Quantizer):
    """forward(x, scale, zero_point) -> x quantized and multiplied back; the gradient passes
    straight through.
    """

    def forward(self, input: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> torch.Tensor:
        return Q.fake_quantization(input, scale, zero_point, *self._how())


class Quantization(_Quantizer):
    """forward(x, scale, zero_point) -> x in quantized units, floating dtype."""

    def forward(self, input: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> torch.Tensor:
        return Q.quantization(input, scale, zero_point, *self._how())
