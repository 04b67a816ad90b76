"""Layer, RMS, group and batch normalization under OneFlow's raw signatures."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .._ops.nn_norm import batch_norm
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


def _tail(name, x, begin_norm_axis, begin_params_axis):
    begin = _check.axis_of(name, begin_norm_axis, x.ndim)
    params = _check.axis_of(name, begin_params_axis, x.ndim)
    if params != begin:
        raise NotImplementedError(
            f"{name}: begin_params_axis must equal begin_norm_axis, found {begin_params_axis} and"
            f" {begin_norm_axis}"
        )
    return x.shape[begin:]


def layer_norm(x, begin_norm_axis, begin_params_axis, epsilon):
    """Layer norm over the dimensions from `begin_norm_axis` on, without scale and shift."""
    return F.layer_norm(x, _tail("layer_norm", x, begin_norm_axis, begin_params_axis), None, None, epsilon)


def layer_norm_affine(x, gamma, beta, begin_norm_axis, begin_params_axis, epsilon):
    """Layer norm over the dimensions from `begin_norm_axis` on, times gamma plus beta."""
    return F.layer_norm(
        x, _tail("layer_norm_affine", x, begin_norm_axis, begin_params_axis), gamma, beta, epsilon
    )


def rms_norm(x, weight=None, normalized_shape=None, epsilon=1e-6):
    """x / sqrt(mean(x^2) + epsilon) over the trailing `normalized_shape`, times weight."""
    shape = weight.shape if normalized_shape is None and weight is not None else normalized_shape
    if shape is None:
        raise TypeError("rms_norm: give normalized_shape, or a weight to take it from")
    return F.rms_norm(x, (shape,) if isinstance(shape, int) else tuple(shape), weight, epsilon)


def rms_layer_norm(hidden_states, weight, variance_epsilon):
    """T5's layer norm: RMS norm over the last dimension, times a weight that broadcasts."""
    if weight.dim() != 1:
        return F.rms_norm(hidden_states, hidden_states.shape[-1:], None, variance_epsilon) * weight
    return F.rms_norm(hidden_states, hidden_states.shape[-1:], weight, variance_epsilon)


def _skip(x, bias, skip, alpha):
    if bias is not None:
        x = x + bias
    return x if skip is None else x + alpha * skip


def skip_layer_norm(x, *, gamma=None, beta=None, bias=None, skip=None, epsilon=1e-5, alpha=1e1):
    """Layer norm over the last dimension of x + bias + alpha * skip. alpha is 10 by default, as OneFlow
    declares it.
    """
    return F.layer_norm(_skip(x, bias, skip, alpha), x.shape[-1:], gamma, beta, epsilon)


def skip_rms_norm(x, *, weight=None, bias=None, skip=None, epsilon=1e-5, alpha=1e1):
    """RMS norm over the last dimension of x + bias + alpha * skip. alpha is 10 by default, as OneFlow
    declares it.
    """
    return F.rms_norm(_skip(x, bias, skip, alpha), x.shape[-1:], weight, epsilon)


def group_norm(
    x,
    gamma=None,
    beta=None,
    affine=None,
    num_groups=None,
    epsilon=1e-5,
    data_format="channels_first",
    activation="none",
):
    """Group norm; `activation` "none" or "silu" is applied to the result, `data_format` names the channel
    dimension.
    """
    _check.one_of("group_norm", "activation", activation, ("none", "silu"))
    _check.one_of("group_norm", "data_format", data_format, ("channels_first", "channels_last"))
    last = data_format == "channels_last"
    y = F.group_norm(
        x.movedim(-1, 1) if last else x,
        num_groups,
        gamma if affine else None,
        beta if affine else None,
        epsilon,
    )
    y = F.silu(y) if activation == "silu" else y
    return y.movedim(1, -1) if last else y


def normalization(
    x,
    moving_mean=None,
    moving_variance=None,
    gamma=None,
    beta=None,
    axis=1,
    epsilon=1e-5,
    momentum=0.9,
    is_training=False,
):
    """Batch norm with channels on `axis`.

    `momentum` is the share of the batch's own value in the moving one, as torch's.

    Training without moving statistics normalizes by the batch's own. moving_mean and moving_variance are
    updated in place.
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
    x,
    addend=None,
    moving_mean=None,
    moving_variance=None,
    gamma=None,
    beta=None,
    axis=1,
    epsilon=1e-5,
    momentum=0.9,
    is_training=False,
):
    """relu(normalization(x) + addend)."""
    y = normalization(x, moving_mean, moving_variance, gamma, beta, axis, epsilon, momentum, is_training)
    return torch.relu(y if addend is None else y + addend)


def sqrt_square_sum(x):
    """The L2 norm of all elements, 0-d."""
    return torch.linalg.vector_norm(x)
