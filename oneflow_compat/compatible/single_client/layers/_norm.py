"""Batch and layer normalization layers."""

from __future__ import annotations

from typing import Any

import torch

from ...._ops.nn.norm import batch_norm
from .. import scope
from .._functions.initializers import constant_initializer
from .._jobs import context as _context
from .._jobs.variables import api_get_variable
from ..nn import _normalization


def batch_normalization(
    inputs: torch.Tensor,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 0.001,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = None,
    gamma_initializer: Any = None,
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    moving_mean_initializer: Any = None,
    moving_variance_initializer: Any = None,
    trainable: bool = True,
    training: bool = True,
    name: str = "BatchNorm",
    gamma_name: Any = None,
    beta_name: Any = None,
    moving_mean_name: Any = None,
    moving_variance_name: Any = None,
) -> torch.Tensor:
    """Normalize each slice of `axis`; moving = momentum * moving + (1 - momentum) * batch.

    Variables "<name>-gamma", "-beta", "-moving_mean", "-moving_variance". The batch's own mean and variance
    are used in a train job with `training` and `trainable`, the moving ones elsewhere.
    """
    axis %= inputs.dim()
    n = inputs.shape[axis]
    dtype = torch.float32 if inputs.dtype in (torch.float16, torch.bfloat16) else inputs.dtype

    def variable(
        own: Any, default: str, value: float, initializer: Any, regularizer: Any, learn: bool
    ) -> torch.Tensor:
        with scope.namespace(name):
            return api_get_variable(
                own or default,
                (n,),
                dtype,
                initializer or constant_initializer(value),
                regularizer,
                learn,
                reuse=False,
            )

    beta = variable(beta_name, "beta", 0.0, beta_initializer, beta_regularizer, trainable) if center else None
    gamma = (
        variable(gamma_name, "gamma", 1.0, gamma_initializer, gamma_regularizer, trainable) if scale else None
    )
    mean = variable(moving_mean_name, "moving_mean", 0.0, moving_mean_initializer, None, False)
    var = variable(moving_variance_name, "moving_variance", 1.0, moving_variance_initializer, None, False)
    trace = _context.require_trace("layers.batch_normalization")
    learning = training and trainable and trace.job.job_type == "train"
    if trace.probe:  # the probe only creates variables: leave the moving values alone
        mean, var = mean.clone(), var.clone()
    x = inputs if axis == 1 else inputs.movedim(axis, 1)
    y = batch_norm(x, mean, var, gamma, beta, learning, 1.0 - momentum, epsilon)
    return y if axis == 1 else y.movedim(1, axis)


def batch_normalization_add_relu(
    inputs: Any,
    addend: Any = None,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 0.001,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = None,
    gamma_initializer: Any = None,
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    moving_mean_initializer: Any = None,
    moving_variance_initializer: Any = None,
    trainable: bool = True,
    training: bool = True,
    name: str = "BatchNorm",
    gamma_name: Any = None,
    beta_name: Any = None,
    moving_mean_name: Any = None,
    moving_variance_name: Any = None,
) -> Any:
    """relu(batch_normalization(inputs) + addend)."""
    y = batch_normalization(
        inputs,
        axis,
        momentum,
        epsilon,
        center,
        scale,
        beta_initializer,
        gamma_initializer,
        beta_regularizer,
        gamma_regularizer,
        moving_mean_initializer,
        moving_variance_initializer,
        trainable,
        training,
        name,
        gamma_name,
        beta_name,
        moving_mean_name,
        moving_variance_name,
    )
    return torch.relu(y if addend is None else y + addend)


def batch_normalization_relu(
    inputs: Any,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 0.001,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = None,
    gamma_initializer: Any = None,
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    moving_mean_initializer: Any = None,
    moving_variance_initializer: Any = None,
    trainable: bool = True,
    training: bool = True,
    name: str = "BatchNorm",
) -> Any:
    return batch_normalization_add_relu(
        inputs,
        None,
        axis,
        momentum,
        epsilon,
        center,
        scale,
        beta_initializer,
        gamma_initializer,
        beta_regularizer,
        gamma_regularizer,
        moving_mean_initializer,
        moving_variance_initializer,
        trainable,
        training,
        name,
    )


def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    epsilon: float = 1e-5,
    name: str = "LayerNorm",
) -> Any:
    """Normalize over the dimensions from begin_norm_axis on; variables "<name>-gamma" and "<name>-beta"."""
    shape = tuple(inputs.shape[begin_params_axis % inputs.dim() :])
    gamma = beta = None
    with scope.namespace(name):
        if center:
            beta = api_get_variable(
                "beta",
                shape,
                inputs.dtype,
                constant_initializer(0.0),
                trainable=trainable,
                model_name="beta",
                reuse=False,
            )
        if scale:
            gamma = api_get_variable(
                "gamma",
                shape,
                inputs.dtype,
                constant_initializer(1.0),
                trainable=trainable,
                model_name="gamma",
                reuse=False,
            )
    return _normalization.layer_norm(inputs, gamma, beta, begin_norm_axis, begin_params_axis, epsilon)


def layer_norm_grad(
    dy: torch.Tensor,
    x: torch.Tensor,
    mean: Any,
    inv_variance: Any,
    begin_norm_axis: int = 1,
    name: str = "LayerNormGrad",
) -> Any:
    """Gradient of the normalization with respect to x.

    `mean` and `inv_variance` have the leading shape x.shape[:begin_norm_axis].
    """
    dims = tuple(range(begin_norm_axis % x.dim(), x.dim()))
    lead = (*x.shape[: dims[0]], *[1] * len(dims))
    inverse = inv_variance.reshape(lead)
    normal = (x - mean.reshape(lead)) * inverse
    return inverse * (dy - dy.mean(dims, keepdim=True) - normal * (dy * normal).mean(dims, keepdim=True))


def layer_norm_param_grad(
    dy: torch.Tensor, norm: Any, gamma: Any, begin_params_axis: int = -1, name: str = "LayerNormParamGrad"
) -> Any:
    """(gradient for the normalized blob, for beta, for gamma)."""
    lead = tuple(range(begin_params_axis % dy.dim()))
    return dy * gamma, dy.sum(lead), (dy * norm).sum(lead)
