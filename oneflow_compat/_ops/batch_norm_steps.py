"""Operators of `oneflow._C` for batch normalization in steps, as SyncBatchNorm does it on several ranks."""

from __future__ import annotations

import torch

__all__ = ["batch_norm_backward_elemt", "batch_norm_backward_reduce", "batch_norm_elemt", "batch_norm_stats"]


def _spread(value: torch.Tensor, like: torch.Tensor, axis: int) -> torch.Tensor:
    return value.reshape([-1 if d == axis % like.dim() else 1 for d in range(like.dim())])


def _other(input: torch.Tensor, axis: int) -> list[int]:
    return [d for d in range(input.dim()) if d != axis % input.dim()]


def batch_norm_stats(input: torch.Tensor, axis: int, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(mean, 1 / sqrt(variance + eps)) of each channel along `axis`.

    Both have shape (channels,).
    """
    variance, mean = torch.var_mean(input, _other(input, axis), unbiased=False)
    return mean, (variance + eps).rsqrt()


def batch_norm_elemt(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    axis: int,
    eps: float,
) -> torch.Tensor:
    """(input - mean) * invstd * weight + bias with one number of each per channel along `axis`; `eps` is
    already in invstd.

    The statistics and weights have shape (channels,); the result has the shape and dtype of the input.
    """
    mean, invstd, weight, bias = (_spread(t, input, axis) for t in (mean, invstd, weight, bias))
    return (input - mean) * invstd * weight + bias


def batch_norm_backward_reduce(
    grad_out: torch.Tensor, input: torch.Tensor, mean: torch.Tensor, invstd: torch.Tensor, axis: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(sum_dy, sum_dy_xmu, grad_weight, grad_bias) of each channel along `axis`."""
    dims = _other(input, axis)
    sum_dy = grad_out.sum(dims)
    sum_dy_xmu = (grad_out * (input - _spread(mean, input, axis))).sum(dims)
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy.clone()


def batch_norm_backward_elemt(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor,
    sum_dy: torch.Tensor,
    sum_dy_xmu: torch.Tensor,
    count: torch.Tensor,
    axis: int,
) -> torch.Tensor:
    """The gradient of batch_norm_elemt's input, given the sums over all ranks; `count` holds the elements per
    channel of each rank.
    """
    total = count.sum()
    mean_dy, mean_dy_xmu = (_spread(t / total, input, axis) for t in (sum_dy, sum_dy_xmu))
    mean, invstd, weight = (_spread(t, input, axis) for t in (mean, invstd, weight))
    return (grad_out - mean_dy - (input - mean) * invstd * invstd * mean_dy_xmu) * invstd * weight
