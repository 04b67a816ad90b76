"""Small modules around OneFlow's own operators."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn

from ..._global.failures import transfer
from ..._kernels import losses, norm
from ..._kernels.activation import quick_gelu, square_relu
from ..._ops.partial_fc import distributed_partial_fc_sample
from .. import functional

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = [
    "AllReduce",
    "CombinedMarginLoss",
    "DistributedPariticalFCSample",
    "Interpolate",
    "QuickGELU",
    "RMSLayerNorm",
    "SquareReLU",
]


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return quick_gelu(x)


class SquareReLU(nn.Module):
    """relu(x) squared."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return square_relu(x)


class RMSLayerNorm(nn.Module):
    """RMS norm over the last dimension with a weight of ones, as T5 has it.

    Deprecated in OneFlow for RMSNorm.
    """

    def __init__(self, hidden_size: int, eps: float = 1e-6) -> None:
        super().__init__()
        warnings.warn("oneflow.nn.RMSLayerNorm is deprecated: use oneflow.nn.RMSNorm", stacklevel=2)
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return norm.rms_layer_norm(hidden_states, self.weight, self.variance_epsilon)


class CombinedMarginLoss(nn.Module):
    """forward(x, label) -> the cosines x with the label's entry replaced by cos(m1 * acos(x) + m2) - m3, in
    training and evaluation.
    """

    def __init__(self, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0) -> None:
        super().__init__()
        self.m1, self.m2, self.m3 = m1, m2, m3

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return losses.combined_margin_loss(x, label, self.m1, self.m2, self.m3)


class AllReduce(nn.Module):
    """forward(x): the sum of x over the processes of torch's default group; x itself on one process.

    `parallel_conf_str` describes the devices in OneFlow; it is kept and selects nothing here. No gradient
    passes, as in OneFlow, where it averages gradients.
    """

    def __init__(self, parallel_conf_str: str) -> None:
        super().__init__()
        self.parallel_conf_str = parallel_conf_str

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return x
        out = x.detach().clone(memory_format=torch.contiguous_format)
        with transfer("AllReduce"):
            dist.all_reduce(out)
        return out


class DistributedPariticalFCSample(nn.Module):
    """forward(weight, label): (label numbered within the sample, ids of the sampled classes, their rows of
    weight).
    """

    def __init__(self, num_sample: int) -> None:
        super().__init__()
        self.num_sample = num_sample

    def forward(
        self, weight: torch.Tensor, label: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return distributed_partial_fc_sample(weight, label, self.num_sample)


class Interpolate(nn.Module):
    """forward(x): nn.functional.interpolate of x with the arguments given here."""

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor = (
            size,
            scale_factor,
            mode,
            align_corners,
            recompute_scale_factor,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(
            x, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )
