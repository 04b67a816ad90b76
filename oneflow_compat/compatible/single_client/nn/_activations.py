"""Activations and small layers without state."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .._functions import math as _math
from .._functions.orders import takes_older_orders
from .._jobs import context as _context
from .._jobs.feeds import seeded_uniform


def relu(x: torch.Tensor, name: str | None = None) -> torch.Tensor:
    return torch.relu(x)


def relu6(x: torch.Tensor, name: str | None = None) -> torch.Tensor:
    return F.relu6(x)


def leaky_relu(x: torch.Tensor, alpha: float = 0.2, name: str | None = None) -> torch.Tensor:
    return F.leaky_relu(x, alpha)


def elu(x: torch.Tensor, alpha: float = 1.0, name: str | None = None) -> torch.Tensor:
    return F.elu(x, alpha)


def hardsigmoid(x: torch.Tensor, name: str | None = None) -> torch.Tensor:
    return F.hardsigmoid(x)


def hardswish(x: torch.Tensor, name: str | None = None) -> torch.Tensor:
    return F.hardswish(x)


def hardtanh(
    x: torch.Tensor, min_val: float = -1.0, max_val: float = 1.0, name: str | None = None
) -> torch.Tensor:
    return F.hardtanh(x, min_val, max_val)


def mish(x: torch.Tensor, name: str | None = None) -> torch.Tensor:
    return F.mish(x)


def swish(x: torch.Tensor, beta: float = 1.0, name: str | None = None) -> torch.Tensor:
    return x * torch.sigmoid(beta * x)


def softmax(logits: torch.Tensor, axis: int | None = None, name: str | None = None) -> torch.Tensor:
    return torch.softmax(logits, -1 if axis is None else axis)


def logsoftmax(logits: torch.Tensor, axis: Any = None, name: str | None = None) -> torch.Tensor:
    return torch.log_softmax(logits, -1 if axis is None else axis)


def softmax_grad(
    y: torch.Tensor, dy: torch.Tensor, axis: int | None = None, name: str | None = None
) -> torch.Tensor:
    """Gradient of softmax, from its result y."""
    axis = -1 if axis is None else axis
    return (dy - (y * dy).sum(axis, keepdim=True)) * y


def _bias_axis(value: torch.Tensor, bias: torch.Tensor, data_format: str | None) -> int:
    """The channel axis: 1 for "NC..." or None, the last for "N...C"."""
    if data_format is None or data_format.upper().startswith("NC"):
        axis = 1
    elif data_format.upper().startswith("N") and data_format.upper().endswith("C"):
        axis = value.dim() - 1
    else:
        raise ValueError(f"data_format must be of the form NC... or N...C, found {data_format!r}")
    if bias.dim() != 1 or bias.shape[0] != value.shape[axis]:
        raise ValueError(
            f"bias_add: bias of shape {tuple(bias.shape)} does not fit dimension {axis} of a value of shape"
            f" {tuple(value.shape)}"
        )
    return axis


def bias_add(
    value: torch.Tensor, bias: torch.Tensor, data_format: str | None = None, name: str | None = None
) -> torch.Tensor:
    axis = _bias_axis(value, bias, data_format)
    return value + bias.reshape(-1, *[1] * (value.dim() - axis - 1))


def fused_bias_add_gelu(
    value: torch.Tensor, bias: torch.Tensor, data_format: str | None = None, name: str | None = None
) -> torch.Tensor:
    return F.gelu(bias_add(value, bias, data_format))


@takes_older_orders("nn.tril")
def tril(x: torch.Tensor, diagonal: int = 0, fill_value: float = 0, name: str | None = None) -> torch.Tensor:
    return _math.tril(x, diagonal, fill_value)


def fused_scale_tril(
    x: torch.Tensor, diagonal: int = 0, fill_value: float = 0, scale: float = 1, name: str | None = None
) -> torch.Tensor:
    return _math.fused_scale_tril(x, diagonal, fill_value, scale)


def PixelShuffle(input: torch.Tensor, upscale_factor: int, name: str | None = None) -> torch.Tensor:
    return F.pixel_shuffle(input, upscale_factor)


def PixelShufflev2(
    input: torch.Tensor, h_upscale_factor: int, w_upscale_factor: int, name: str | None = None
) -> torch.Tensor:
    """Pixel shuffle with different factors for height and width, NCHW."""
    n, c, h, w = input.shape
    a, b = h_upscale_factor, w_upscale_factor
    if c % (a * b):
        raise ValueError(f"PixelShufflev2: {c} channels cannot be divided by {a} * {b}")
    x = input.reshape(n, c // (a * b), a, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(n, c // (a * b), h * a, w * b)


def fused_self_attention_query_mul_key_and_value(
    x: torch.Tensor, head_size: int, alpha: float = 1.0, name: str | None = None
) -> tuple[torch.Tensor, ...]:
    """(query times key, value) of a projection x of shape (sequence, batch, heads * 3 * head_size).

    Results: (batch, heads, sequence, sequence) scaled by alpha, and (batch, heads, sequence, head_size).
    """
    s, b, h = x.shape
    if h % (3 * head_size):
        raise ValueError(
            f"fused_self_attention: the last dimension {h} is no multiple of 3 * head_size = {3 * head_size}"
        )
    q, k, v = x.reshape(s, b, h // (3 * head_size), 3, head_size).permute(3, 1, 2, 0, 4).unbind(0)
    return torch.matmul(q, k.transpose(-1, -2)) * alpha, v


# --------------------------------------------------------------------------- Dropout and random masks


def _uniform(shape: Sequence[int], like: torch.Tensor, seed: int | None) -> torch.Tensor:
    """Uniform random values in [0, 1). A seed makes the sequence of calls repeatable."""
    if seed is None:
        return torch.rand(shape, device=like.device)

    return seeded_uniform(shape, like.device, seed)


def random_mask_like(
    like: torch.Tensor,
    rate: float,
    seed: int | None = None,
    noise_shape: Sequence[int] | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """int8 blob of the shape of `like` (or noise_shape): 1 with probability 1 - rate."""
    if not 0 <= rate < 1:
        raise ValueError(f"the rate of dropped elements must be in [0, 1), found {rate}")
    return (_uniform(like.shape if noise_shape is None else tuple(noise_shape), like, seed) >= rate).to(
        torch.int8
    )


@takes_older_orders("nn.dropout")
def dropout(
    x: torch.Tensor,
    rate: float,
    noise_shape: Sequence[int] | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """x * mask / (1 - rate) in a train job; x itself in a predict job or with rate 0."""
    trace = _context.trace()
    if not rate or (trace is not None and trace.job.job_type != "train"):
        return x
    if seed is None and noise_shape is None:
        return torch.nn.functional.dropout(x, rate)
    return x * random_mask_like(x, rate, seed, noise_shape).to(x.dtype) * (1.0 / (1.0 - rate))


def fused_bias_add_dropout(
    value: torch.Tensor,
    bias: torch.Tensor,
    data_format: str | None = None,
    rate: float = 0.0,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
) -> torch.Tensor:
    return dropout(bias_add(value, bias, data_format), rate, noise_shape, seed)


def fused_scale_tril_softmax_dropout(
    x: torch.Tensor,
    diagonal: int = 0,
    fill_value: float = 0,
    scale: float = 1,
    rate: float = 0.0,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
) -> torch.Tensor:
    probabilities = torch.softmax(_math.fused_scale_tril(x, diagonal, fill_value, scale), -1)
    return dropout(probabilities, rate, noise_shape, seed)
