"""flow.quantization: scales and zero points, and fake quantization, of quantization-aware training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from . import scope
from ._functions.initializers import zeros_initializer
from ._functions.orders import takes_older_orders
from ._jobs import context as _context
from ._jobs.variables import api_get_variable

if TYPE_CHECKING:
    from typing import Any


def _check(bit: int, scheme: str, formula: str) -> None:
    if scheme not in ("symmetric", "affine"):
        raise ValueError(f'quantization_scheme must be "symmetric" or "affine", found {scheme!r}')
    if formula not in ("google", "cambricon"):
        raise ValueError(f'quantization_formula must be "google" or "cambricon", found {formula!r}')
    if formula == "cambricon" and scheme == "affine":
        raise ValueError('the formula "cambricon" has the scheme "symmetric" only')
    if not 2 <= bit <= 16:
        raise ValueError(f"quantization_bit must be in 2 ... 16, found {bit}")


def _scale(
    low: torch.Tensor, high: torch.Tensor, bit: int, scheme: str, formula: str
) -> tuple[torch.Tensor, ...]:
    if formula == "cambricon":
        top = torch.maximum(high.abs(), low.abs())
        scale = torch.floor(torch.log2(top)) - (bit - 2)
        return scale, torch.zeros_like(scale)
    if scheme == "symmetric":
        scale = torch.maximum(high.abs(), low.abs()) / (2 ** (bit - 1) - 1)
        return scale, torch.zeros_like(scale)
    scale = (high - low) / (2**bit - 1)
    return scale, -torch.round(low / scale)


@takes_older_orders("quantization.min_max_observer")
def min_max_observer(
    input: torch.Tensor,
    quantization_bit: int = 8,
    quantization_scheme: str = "symmetric",
    quantization_formula: str = "google",
    per_layer_quantization: bool = True,
    name: str | None = None,
) -> tuple[torch.Tensor, ...] | None:
    """Return (scale, zero point) from the extremes of the blob, or of each slice of dimension 0.

    Their shape is (1,) or (slices,).
    """
    _check(quantization_bit, quantization_scheme, quantization_formula)
    rows = (
        input.detach().reshape(1, -1)
        if per_layer_quantization
        else input.detach().reshape(input.shape[0], -1)
    )
    return _scale(rows.amin(1), rows.amax(1), quantization_bit, quantization_scheme, quantization_formula)


@takes_older_orders("quantization.moving_average_min_max_observer")
def moving_average_min_max_observer(
    input: torch.Tensor,
    quantization_bit: int = 8,
    quantization_scheme: str = "symmetric",
    quantization_formula: str = "google",
    momentum: float = 0.95,
    name: str | None = None,
) -> tuple[torch.Tensor, ...]:
    """Return (scale, zero point) from moving averages of the extremes.

    A train job updates the averages in each call.
    """
    _check(quantization_bit, quantization_scheme, quantization_formula)
    trace = _context.require_trace("flow.quantization.moving_average_min_max_observer")
    name = name or trace.unique_name("MovingAverageMinMaxObserver")
    with scope.namespace(name):
        low = api_get_variable(
            "moving_min", (1,), input.dtype, zeros_initializer(), trainable=False, reuse=False
        )
        high = api_get_variable(
            "moving_max", (1,), input.dtype, zeros_initializer(), trainable=False, reuse=False
        )
        steps = api_get_variable(
            "current_train_step", (1,), torch.int64, zeros_initializer(), trainable=False, reuse=False
        )
    new_low, new_high = low, high
    if trace.job.job_type == "train":
        flat = input.detach().reshape(-1)
        is_first_step = steps == 0
        new_low = torch.where(
            is_first_step, flat.amin().reshape(1), low * momentum + flat.amin() * (1 - momentum)
        )
        new_high = torch.where(
            is_first_step, flat.amax().reshape(1), high * momentum + flat.amax() * (1 - momentum)
        )
        trace.assignments += [(low, new_low), (high, new_high), (steps, steps + 1)]
    return _scale(new_low, new_high, quantization_bit, quantization_scheme, quantization_formula)


moving_average_min_maxObserver = moving_average_min_max_observer  # the name of 0.3


class _Fake(torch.autograd.Function):
    """Round to the grid; the gradient passes unchanged."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        scale: torch.Tensor,
        zero_point: torch.Tensor,
        bit: int,
        scheme: str,
        formula: str,
    ) -> torch.Tensor:
        shape = [-1] + [1] * (x.dim() - 1) if scale.numel() > 1 else [1] * x.dim()
        scale, zero = scale.reshape(shape).to(x.dtype), zero_point.reshape(shape).to(x.dtype)
        if formula == "cambricon":
            scale = torch.pow(2.0, scale)
        if scheme == "affine":
            low, high = 0, 2**bit - 1
        else:
            high = 2 ** (bit - 1) - 1
            low = -high - (1 if formula == "google" else 0)
        return (torch.clamp(torch.round(x / scale + zero), low, high) - zero) * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        return grad, None, None, None, None, None


@takes_older_orders("quantization.fake_quantization")
def fake_quantization(
    input: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    quantization_bit: int = 8,
    quantization_scheme: str = "symmetric",
    quantization_formula: str = "google",
    name: str | None = None,
) -> torch.Tensor:
    """The blob rounded to the values that `quantization_bit` bits can hold; the gradient passes unchanged."""
    _check(quantization_bit, quantization_scheme, quantization_formula)
    return _Fake.apply(input, scale, zero_point, quantization_bit, quantization_scheme, quantization_formula)
