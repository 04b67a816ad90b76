"""Normalization functions; GroupNorm and InstanceNorm make their gamma and beta variables themselves."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ...._ops.nn.norm import gradient_row_by_row
from .. import scope
from .._functions.initializers import ones_initializer, zeros_initializer
from .._functions.math import reduce_mean, reduce_variance
from .._jobs import context as _context
from .._jobs.variables import api_get_variable


def moments(
    x: torch.Tensor, axes: Sequence[int], keepdims: bool = False, name: str | None = None
) -> tuple[torch.Tensor, ...]:
    """(mean, population variance) over the axes."""
    return reduce_mean(x, axes, keepdims), reduce_variance(x, axes, keepdims)


def batch_normalization(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    offset: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    variance_epsilon: float = 1e-5,
    axis: int = 1,
    name: str | None = None,
) -> torch.Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset along the axis, all given."""
    shape = [1] * x.dim()
    shape[axis] = x.shape[axis]
    y = (x - mean.reshape(shape)) * torch.rsqrt(variance.reshape(shape) + variance_epsilon)
    if scale is not None:
        y = y * scale.reshape(shape)
    return y if offset is None else y + offset.reshape(shape)


def layer_norm(
    inputs: torch.Tensor,
    gamma: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> torch.Tensor:
    """Normalize over the dimensions from begin_norm_axis on.

    gamma and beta cover the dimensions from begin_params_axis on.
    """
    shape = inputs.shape[begin_norm_axis % inputs.dim() :]
    params = inputs.shape[begin_params_axis % inputs.dim() :]
    for what, p in (("gamma", gamma), ("beta", beta)):
        if p is not None and tuple(p.shape) != tuple(params):
            raise ValueError(
                f"layer_norm: {what} has shape {tuple(p.shape)}, begin_params_axis={begin_params_axis} needs"
                f" {tuple(params)}"
            )
    if tuple(params) == tuple(shape):
        return F.layer_norm(inputs, shape, gamma, beta, epsilon)
    y = F.layer_norm(inputs, shape, None, None, epsilon)
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


def _affine(name: str | None, layer_name: str, channels: int, affine: bool) -> tuple[Any, ...]:
    if not affine:
        return None, None

    name = name or _context.require_trace(layer_name).unique_name(layer_name)
    with scope.namespace(name):
        gamma = api_get_variable("gamma", (channels,), torch.float32, ones_initializer())
        beta = api_get_variable("beta", (channels,), torch.float32, zeros_initializer())
    return gamma, beta


def GroupNorm(
    x: torch.Tensor, num_groups: int = 32, eps: float = 1e-5, affine: bool = True, name: str | None = None
) -> torch.Tensor:
    """Group normalization of NC...; the variables are "<name>-gamma" and "<name>-beta"."""
    gamma, beta = _affine(name, "GroupNorm", x.shape[1], affine)
    return F.group_norm(x, num_groups, gamma, beta, eps)


def _instance(n: int, x: torch.Tensor, eps: float, affine: bool, name: str | None) -> torch.Tensor:
    if x.dim() != n + 2:
        raise ValueError(f"InstanceNorm{n}d takes a blob of {n + 2} dimensions, found {x.dim()}")
    gamma, beta = _affine(name, f"InstanceNorm{n}d", x.shape[1], affine)
    return gradient_row_by_row(F.instance_norm(x, weight=gamma, bias=beta, eps=eps))


def InstanceNorm1d(
    x: torch.Tensor, eps: float = 1e-5, affine: bool = True, name: str | None = None
) -> torch.Tensor:
    return _instance(1, x, eps, affine, name)


def InstanceNorm2d(
    x: torch.Tensor, eps: float = 1e-5, affine: bool = True, name: str | None = None
) -> torch.Tensor:
    return _instance(2, x, eps, affine, name)


def InstanceNorm3d(
    x: torch.Tensor, eps: float = 1e-5, affine: bool = True, name: str | None = None
) -> torch.Tensor:
    return _instance(3, x, eps, affine, name)
