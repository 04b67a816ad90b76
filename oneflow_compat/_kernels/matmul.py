"""Matrix products under OneFlow's raw signatures, and their fusions with bias, activation and dropout.

torch's addmm and linear already fuse bias and product, so these are compositions of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from . import _check
from .activation import dropout

__all__ = [
    "batch_matmul",
    "fused_glu",
    "fused_matmul_bias",
    "fused_matmul_bias_add_relu_dropout",
    "fused_mlp",
    "fused_weighted_sum",
    "grouped_matmul",
    "grouped_matmul_bias",
    "matrix_vector_product",
]

_ACTIVATIONS = {
    "none": lambda x: x,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": F.gelu,
    "fast_gelu": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


def batch_matmul(
    a: torch.Tensor, b: torch.Tensor, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0
) -> torch.Tensor:
    """alpha * op(a) @ op(b) for operands of three or more dimensions and equal batch."""
    y = torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)
    return y if alpha == 1.0 else y * alpha


def matrix_vector_product(input: torch.Tensor, vec: torch.Tensor) -> torch.Tensor:
    """input @ vec.

    input has shape (n, m), vec (m,), the result (n,).
    """
    return torch.mv(input, vec)


def _linear_shapes(
    name: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> None:
    if weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        raise RuntimeError(
            f"{name}: the weight must be (out, {x.shape[-1]}) for an input {tuple(x.shape)}, found"
            f" {tuple(weight.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise RuntimeError(
            f"{name}: the bias must be ({weight.shape[0]},) for a weight {tuple(weight.shape)}, found"
            f" {tuple(bias.shape)}"
        )


def fused_matmul_bias(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    _add_to_output: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> torch.Tensor:
    """alpha * x @ weight.T + bias, plus beta * _add_to_output. weight is (out, in)."""
    _linear_shapes("fused_matmul_bias", x, weight, bias)
    y = F.linear(x, weight, bias) if alpha == 1.0 else alpha * F.linear(x, weight) + bias
    return y if _add_to_output is None else y + beta * _add_to_output


def _layers(
    name: str, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    if len(weights) != len(biases) or not weights:
        raise RuntimeError(
            f"{name}: weights and biases must be equally many and at least one, found {len(weights)} and"
            f" {len(biases)}"
        )
    return list(zip(weights, biases))


def fused_mlp(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    skip_final_activation: bool,
) -> torch.Tensor:
    """linear + relu for each (weight, bias); `skip_final_activation` leaves the last relu out."""
    layers = _layers("fused_mlp", weights, biases)
    for i, (w, b) in enumerate(layers):
        _linear_shapes("fused_mlp", x, w, b)
        x = F.linear(x, w, b)
        if i + 1 < len(layers) or not skip_final_activation:
            x = torch.relu(x)
    return x


def fused_matmul_bias_add_relu_dropout(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    skip_final_activation: bool,
    dropout_rate_list: Sequence[float],
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """fused_mlp with dropout after each layer, the last one included.

    Always drops, whatever the module's mode.

    x is (..., in), each weight (out, in), each bias (out,). RuntimeError unless there is one rate for each
    layer.
    """
    name = "fused_matmul_bias_add_relu_dropout"
    layers = _layers(name, weights, biases)
    if len(dropout_rate_list) != len(layers):
        raise RuntimeError(
            f"{name}: one dropout rate for each of the {len(layers)} layers, found {len(dropout_rate_list)}"
        )
    for i, (w, b) in enumerate(layers):
        _linear_shapes(name, x, w, b)
        x = F.linear(x, w, b)
        if i + 1 < len(layers) or not skip_final_activation:
            x = torch.relu(x)
        x = dropout(x, _check.rate(name, dropout_rate_list[i]), True, generator)
    return x


def grouped_matmul(xs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """(x @ weight.T for each pair).

    Each x is (m, k) and each weight (n, k). RuntimeError unless there are as many inputs as weights.
    """
    if len(xs) != len(weights):
        raise RuntimeError(f"grouped_matmul: as many inputs as weights, found {len(xs)} and {len(weights)}")
    return tuple(F.linear(x, w) for x, w in zip(xs, weights))


def grouped_matmul_bias(
    xs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """(x @ weight.T + bias for each triple).

    Each x is (m, k), each weight (n, k), each bias (n,). RuntimeError unless the three lists have one
    length.
    """
    if not len(xs) == len(weights) == len(biases):
        raise RuntimeError(
            f"grouped_matmul_bias: as many inputs as weights and biases, found {len(xs)}, {len(weights)},"
            f" {len(biases)}"
        )
    return tuple(F.linear(x, w, b) for x, w, b in zip(xs, weights, biases))


def fused_glu(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
    activation: str = "none",
) -> torch.Tensor:
    """(x @ w.T + b) * activation(gate); the gate is x @ v.T + c, or without v the second half of the first
    product.

    activation: none, sigmoid, relu, gelu, fast_gelu, silu.

    x is (..., in), w (out, in) or without v (2 * out, in); the result is (..., out). RuntimeError for an
    odd number of rows without v.
    """
    _check.one_of("fused_glu", "activation", activation, tuple(_ACTIVATIONS))
    _linear_shapes("fused_glu", x, w, b)
    hidden = F.linear(x, w, b)
    if v is None:
        if w.shape[0] % 2:
            raise RuntimeError(
                "fused_glu: without v the weight holds both halves and must have an even number of rows,"
                f" found {tuple(w.shape)}"
            )
        hidden, gate = hidden.chunk(2, -1)
    else:
        _linear_shapes("fused_glu", x, v, c)
        gate = F.linear(x, v, c)
    return hidden * _ACTIVATIONS[activation](gate)


def fused_weighted_sum(
    inputs: Sequence[torch.Tensor] | None = None,
    weights: Sequence[float] | None = None,
    alpha: float = 1.0,
    **kwargs: Any,
) -> torch.Tensor:
    """alpha * sum of weights[i] * inputs[i] (OneFlow calls the first argument `in`).

    All inputs have one shape, which the result has. RuntimeError unless there are as many weights as
    inputs, and at least one. TypeError for an unknown keyword.
    """
    inputs = kwargs.pop("in", inputs)
    if kwargs:
        raise TypeError(f"fused_weighted_sum() got an unexpected argument {next(iter(kwargs))!r}")
    inputs = _check.needed("fused_weighted_sum", "in", inputs)
    weights = _check.needed("fused_weighted_sum", "weights", weights)
    if len(inputs) != len(weights) or not inputs:
        raise RuntimeError(
            f"fused_weighted_sum: as many weights as inputs and at least one, found {len(weights)} and"
            f" {len(inputs)}"
        )
    out = inputs[0] * (alpha * weights[0])
    for x, w in zip(inputs[1:], weights[1:]):
        out = torch.add(out, x, alpha=alpha * w)
    return out
