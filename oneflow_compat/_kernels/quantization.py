"""Quantization observers, fake quantization, and weights packed by groups."""

from __future__ import annotations

from typing import Any

import torch

from . import _check, _ext, kernels

__all__ = [
    "fake_quantization",
    "fused_linear_with_groupwise_quantized_weight",
    "groupwise_dequantize",
    "min_max_observer",
    "moving_average_min_max_observer",
    "quantization",
]


def _scheme(name: str, formula: str, bit: int, scheme: str) -> bool:
    """Check the triple; True for symmetric, which the cambricon formula always is."""
    _check.one_of(name, "quantization_formula", formula, ("google", "cambricon"))
    _check.one_of(name, "quantization_scheme", scheme, ("symmetric", "affine"))
    if not 2 <= bit <= 8:
        raise ValueError(f"{name}: quantization_bit must be from 2 to 8, found {bit}")
    return scheme == "symmetric" or formula == "cambricon"


def _scale_and_zero(
    low: torch.Tensor, high: torch.Tensor, formula: str, bit: int, symmetric: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and zero point of the range low..high (symmetric: of -high..high)."""
    if formula == "cambricon":
        return torch.floor(torch.log2(high)) - (bit - 2), torch.zeros_like(high)
    if symmetric:
        return high / (2 ** (bit - 1) - 1), torch.zeros_like(high)
    scale = (high - low) / (2**bit - 1)
    return scale, -torch.round(low / scale)


@torch.no_grad()
def min_max_observer(
    input: torch.Tensor | None = None,
    quantization_formula: str = "google",
    quantization_bit: int = 8,
    quantization_scheme: str = "symmetric",
    per_layer_quantization: bool = True,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(scale, zero point) from the extremes: of the whole tensor, [1], or of each row of dimension 0, [rows].

    google: scale = max|x| / (2^(bit-1) - 1) or (max - min) / (2^bit - 1); cambricon: scale is the exponent
    floor(log2 max|x|) - (bit - 2). OneFlow calls the first argument `in`.
    """
    x = _check.tensor_in("min_max_observer", input, kwargs)
    symmetric = _scheme("min_max_observer", quantization_formula, quantization_bit, quantization_scheme)
    rows = x.reshape(1 if per_layer_quantization else x.shape[0], -1)
    high = rows.abs().amax(1) if symmetric else rows.amax(1)
    return _scale_and_zero(rows.amin(1), high, quantization_formula, quantization_bit, symmetric)


@torch.no_grad()
def moving_average_min_max_observer(
    input: torch.Tensor | None = None,
    current_train_step: torch.Tensor | None = None,
    moving_max: torch.Tensor | None = None,
    moving_min: torch.Tensor | None = None,
    training: bool = True,
    stop_update_after_iters: int = 1,
    quantization_formula: str = "google",
    quantization_bit: int = 8,
    quantization_scheme: str = "symmetric",
    momentum: float = 0.95,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(scale, zero point), each [1], from running extremes.

    While training and current_train_step <= stop_update_after_iters, moving_max and moving_min (in place)
    become momentum * old + (1 - momentum) * new, or new where old is 0. Symmetric: both hold max|x|.
    """
    x = _check.tensor_in("moving_average_min_max_observer", input, kwargs)
    symmetric = _scheme(
        "moving_average_min_max_observer", quantization_formula, quantization_bit, quantization_scheme
    )
    moving_max = _check.needed("moving_average_min_max_observer", "moving_max", moving_max)
    moving_min = _check.needed("moving_average_min_max_observer", "moving_min", moving_min)
    if training:
        step = _check.needed("moving_average_min_max_observer", "current_train_step", current_train_step)
        high = x.abs().max() if symmetric else x.max()
        low = high if symmetric else x.min()
        update = step.reshape(()) <= stop_update_after_iters
        for moving, new in ((moving_max, high), (moving_min, low)):
            mixed = torch.where(moving == 0, new, moving * momentum + new * (1 - momentum))
            moving.copy_(torch.where(update, mixed, moving))
    return _scale_and_zero(moving_min, moving_max, quantization_formula, quantization_bit, symmetric)


def _rounded(
    name: str,
    x: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    formula: str,
    bit: int,
    scheme: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(x in quantized units, clamped; the scale to multiply back with; the zero point), broadcast over
    dimension 0.
    """
    symmetric = _scheme(name, formula, bit, scheme)
    if scale.numel() not in (1, x.shape[0] if x.ndim else 1) or scale.shape != zero_point.shape:
        raise RuntimeError(
            f"{name}: scale and zero_point must have 1 or {x.shape[0]} elements, found shapes"
            f" {tuple(scale.shape)} and {tuple(zero_point.shape)}"
        )
    if scale.numel() > 1:
        scale, zero_point = (t.reshape((-1,) + (1,) * (x.ndim - 1)) for t in (scale, zero_point))
    if formula == "cambricon":
        scale = torch.exp2(scale)
        zero_point = torch.zeros_like(scale)
    if symmetric:
        high = 2 ** (bit - 1) - 1
        return torch.round(x / scale).clamp(-high - 1, high), scale, torch.zeros_like(scale)
    return torch.round(x / scale + zero_point).clamp(0, 2**bit - 1), scale, zero_point


def quantization(
    input: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    zero_point: torch.Tensor | None = None,
    quantization_formula: str = "google",
    quantization_bit: int = 8,
    quantization_scheme: str = "symmetric",
    **kwargs: Any,
) -> torch.Tensor:
    """x in quantized units, rounded half to even and clamped to the bit range, still in x's floating dtype.

    No gradient.
    """
    x = _check.tensor_in("quantization", input, kwargs)
    scale = _check.needed("quantization", "scale", scale)
    zero_point = _check.needed("quantization", "zero_point", zero_point)
    with torch.no_grad():
        return _rounded(
            "quantization", x, scale, zero_point, quantization_formula, quantization_bit, quantization_scheme
        )[0]


def fake_quantization(
    input: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    zero_point: torch.Tensor | None = None,
    quantization_formula: str = "google",
    quantization_bit: int = 8,
    quantization_scheme: str = "symmetric",
    **kwargs: Any,
) -> torch.Tensor:
    """x quantized and multiplied back.

    The gradient passes straight through, also where the value was clamped.

    The result has the shape and dtype of x.
    """
    x = _check.tensor_in("fake_quantization", input, kwargs)
    scale = _check.needed("fake_quantization", "scale", scale)
    zero_point = _check.needed("fake_quantization", "zero_point", zero_point)
    per_tensor = (
        scale.numel() == zero_point.numel() == 1
        and scale.dtype is zero_point.dtype
        and scale.device == zero_point.device == x.device
    )
    if per_tensor and scale.dtype in _ext.WIDE and quantization_formula == "google" and _ext.use(x):
        symmetric = _scheme("fake_quantization", quantization_formula, quantization_bit, quantization_scheme)
        high = 2 ** (quantization_bit - 1) - 1 if symmetric else 2**quantization_bit - 1
        zero = torch.zeros_like(zero_point) if symmetric else zero_point
        return kernels.run.fake_quantize(x, scale, zero, float(-high - 1 if symmetric else 0), float(high))
    with torch.no_grad():
        q, scale, zero_point = _rounded(
            "fake_quantization",
            x,
            scale,
            zero_point,
            quantization_formula,
            quantization_bit,
            quantization_scheme,
        )
        y = (q - zero_point) * scale
    return _StraightThrough.apply(x, y) if x.requires_grad and torch.is_grad_enabled() else y


class _StraightThrough(torch.autograd.Function):
    """The value of y with the gradient of x."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


def _unpack4(x: torch.Tensor) -> torch.Tensor:
    """Two 4-bit values a byte, the high one first, along the last dimension. int8 values are signed."""
    low = (x << 4) >> 4 if x.dtype is torch.int8 else x & 15
    return torch.stack((x >> 4, low), -1).flatten(-2)


def groupwise_dequantize(
    input: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    *,
    zero: torch.Tensor | None = None,
    num_bits: int = 8,
    symmetric: bool = True,
    group_dim: int = -1,
    group_size: int = -1,
    **kwargs: Any,
) -> torch.Tensor:
    """Floating values of packed integers quantized in groups of `group_size` along `group_dim` (-1: the whole
    dimension).

    symmetric: (q - offset) * scale, offset 2^(bits-1) - 1 for uint8 and 0 for int8; else q * scale + zero. 4
    bits are two to a byte, high first. scale and zero have input's shape with group_dim divided by
    group_size. The result is in scale's dtype.

    TypeError unless the packed tensor is uint8 or int8. RuntimeError if the groups do not fit the scale, or
    if `zero` is missing or superfluous.
    """
    name = "groupwise_dequantize"
    q = _check.tensor_in(name, input, kwargs)
    scale = _check.needed(name, "scale", scale)
    _check.one_of(name, "num_bits", num_bits, (4, 8))
    if q.dtype not in (torch.uint8, torch.int8):
        raise TypeError(f"{name}: the packed tensor must be uint8 or int8, found {q.dtype}")
    if symmetric == (zero is not None):
        raise RuntimeError(
            f"{name}: `zero` is given exactly when symmetric is False, found symmetric={symmetric} and"
            f" {'a' if zero is not None else 'no'} zero"
        )
    q = _unpack4(q) if num_bits == 4 else q
    dim = _check.axis_of(name, group_dim, q.ndim)
    group = q.shape[dim] if group_size == -1 else group_size
    if (
        group <= 0
        or q.shape[dim] % group
        or scale.shape != q.shape[:dim] + (q.shape[dim] // group,) + q.shape[dim + 1 :]
    ):
        raise RuntimeError(
            f"{name}: groups of {group} along dimension {dim} of {tuple(q.shape)} do not fit a scale"
            f" {tuple(scale.shape)}"
        )
    values = q.unflatten(dim, (-1, group)).to(scale.dtype)
    if zero is None:
        offset = float(2 ** (num_bits - 1) - 1) if q.dtype is torch.uint8 else 0.0
        values = (values - offset) * scale.unsqueeze(dim + 1)
    else:
        values = values * scale.unsqueeze(dim + 1) + zero.unsqueeze(dim + 1)
    return values.flatten(dim, dim + 1)


def fused_linear_with_groupwise_quantized_weight(
    x: torch.Tensor,
    w: torch.Tensor,
    w_scale: torch.Tensor,
    *,
    w_zero: torch.Tensor | None = None,
    b: torch.Tensor | None = None,
    num_bits: int = 8,
    symmetric: bool = True,
    group_dim: int = -1,
    group_size: int = -1,
) -> torch.Tensor:
    """x @ groupwise_dequantize(w).T + b.

    x has shape (..., in), w (out, in) after unpacking, the result (..., out) and the dtype of x.
    """
    weight = groupwise_dequantize(
        w,
        w_scale,
        zero=w_zero,
        num_bits=num_bits,
        symmetric=symmetric,
        group_dim=group_dim,
        group_size=group_size,
    )
    return torch.nn.functional.linear(x, weight.to(x.dtype), b)
