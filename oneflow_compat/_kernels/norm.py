"""Layer, RMS, group and batch normalization under OneFlow's raw signatures."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from .._ops.nn.norm import batch_norm
from . import _check

__all__ = [
    "group_norm",
    "layer_norm",
    "layer_norm_affine",
    "normalization",
    "normalization_add_relu",
    "rms_layer_norm",
    "rms_norm",
    "skip_layer_norm",
    "skip_rms_norm",
    "sqrt_square_sum",
]


def _tail(name: str, x: torch.Tensor, begin_norm_axis: int, begin_params_axis: int) -> torch.Size:
    begin = _check.axis_of(name, begin_norm_axis, x.ndim)
    params = _check.axis_of(name, begin_params_axis, x.ndim)
    if params != begin:
        raise NotImplementedError(
            f"{name}: begin_params_axis must equal begin_norm_axis, found {begin_params_axis} and"
            f" {begin_norm_axis}"
        )
    return x.shape[begin:]


def layer_norm(x: torch.Tensor, begin_norm_axis: int, begin_params_axis: int, epsilon: float) -> torch.Tensor:
    """Layer norm over the dimensions from `begin_norm_axis` on, without scale and shift."""
    return F.layer_norm(x, _tail("layer_norm", x, begin_norm_axis, begin_params_axis), None, None, epsilon)


def layer_norm_affine(
    x: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    begin_norm_axis: int,
    begin_params_axis: int,
    epsilon: float,
) -> torch.Tensor:
    """Layer norm over the dimensions from `begin_norm_axis` on, times gamma plus beta."""
    return F.layer_norm(
        x, _tail("layer_norm_affine", x, begin_norm_axis, begin_params_axis), gamma, beta, epsilon
    )


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    normalized_shape: Sequence[int] | None = None,
    epsilon: float = 1e-6,
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + epsilon) over the trailing `normalized_shape`, times weight.

    The result has the shape and dtype of x. TypeError without `normalized_shape` and weight.
    """
    shape = weight.shape if normalized_shape is None and weight is not None else normalized_shape
    if shape is None:
        raise TypeError("rms_norm: give normalized_shape, or a weight to take it from")
    return F.rms_norm(x, (shape,) if isinstance(shape, int) else tuple(shape), weight, epsilon)


def rms_layer_norm(
    hidden_states: torch.Tensor, weight: torch.Tensor, variance_epsilon: float
) -> torch.Tensor:
    """T5's layer norm: RMS norm over the last dimension, times a weight that broadcasts."""
    if weight.dim() != 1:
        return F.rms_norm(hidden_states, hidden_states.shape[-1:], None, variance_epsilon) * weight
    return F.rms_norm(hidden_states, hidden_states.shape[-1:], weight, variance_epsilon)


def _skip(
    x: torch.Tensor, bias: torch.Tensor | None, skip: torch.Tensor | None, alpha: float
) -> torch.Tensor:
    if bias is not None:
        x = x + bias
    return x if skip is None else x + alpha * skip


def skip_layer_norm(
    x: torch.Tensor,
    *,
    gamma: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    skip: torch.Tensor | None = None,
    epsilon: float = 1e-5,
    alpha: float = 1e1,
) -> torch.Tensor:
    """Layer norm over the last dimension of x + bias + alpha * skip. alpha is 10 by default, as OneFlow
    declares it.
    """
    return F.layer_norm(_skip(x, bias, skip, alpha), x.shape[-1:], gamma, beta, epsilon)


def skip_rms_norm(
    x: torch.Tensor,
    *,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    skip: torch.Tensor | None = None,
    epsilon: float = 1e-5,
    alpha: float = 1e1,
) -> torch.Tensor:
    """RMS norm over the last dimension of x + bias + alpha * skip. alpha is 10 by default, as OneFlow
    declares it.
    """
    return F.rms_norm(_skip(x, bias, skip, alpha), x.shape[-1:], weight, epsilon)


def group_norm(
    x: torch.Tensor,
    gamma: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    affine: bool | None = None,
    num_groups: int | None = None,
    epsilon: float = 1e-5,
    data_format: str = "channels_first",
    activation: str = "none",
) -> torch.Tensor:
    """Group norm; `activation` "none" or "silu" is applied to the result, `data_format` names the channel
    dimension.
    """
    _check.one_of("group_norm", "activation", activation, ("none", "silu"))
    _check.one_of("group_norm", "data_format", data_format, ("channels_first", "channels_last"))
    last = data_format == "channels_last"
    y = F.group_norm(
        x.movedim(-1, 1) if last else x,
        _check.needed("group_norm", "num_groups", num_groups),
        gamma if affine else None,
        beta if affine else None,
        epsilon,
    )
    y = F.silu(y) if activation == "silu" else y
    return y.movedim(1, -1) if last else y


def normalization(
    x: torch.Tensor,
    moving_mean: torch.Tensor | None = None,
    moving_variance: torch.Tensor | None = None,
    gamma: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    axis: int = 1,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    is_training: bool = False,
) -> torch.Tensor:
    """Batch norm with channels on `axis`.

    `momentum` is the share of the batch's own value in the moving one, as torch's.

    Training without moving statistics normalizes by the batch's own. moving_mean and moving_variance are
    updated in place.

    RuntimeError for evaluation without moving statistics.
    """
    axis = _check.axis_of("normalization", axis, x.ndim)
    if not is_training and moving_mean is None:
        raise RuntimeError(
            "normalization: evaluation (is_training=False) needs moving_mean and moving_variance, found None"
        )
    y = batch_norm(
        x.movedim(axis, 1), moving_mean, moving_variance, gamma, beta, is_training, momentum, epsilon
    )
    return y.movedim(1, axis)


def normalization_add_relu(
    x: torch.Tensor,
    addend: torch.Tensor | None = None,
    moving_mean: torch.Tensor | None = None,
    moving_variance: torch.Tensor | None = None,
    gamma: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    axis: int = 1,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    is_training: bool = False,
) -> torch.Tensor:
    """relu(normalization(x) + addend).

    The result has the shape and dtype of x; addend broadcasts to it.
    """
    y = normalization(x, moving_mean, moving_variance, gamma, beta, axis, epsilon, momentum, is_training)
    return torch.relu(y if addend is None else y + addend)


def sqrt_square_sum(x: torch.Tensor) -> torch.Tensor:
    """The L2 norm of all elements, 0-d."""
    return torch.linalg.vector_norm(x)
