"""Small modules around OneFlow's own operators."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from ..._kernels import losses, norm
from ..._kernels.activation import quick_gelu, square_relu

__all__ = ["CombinedMarginLoss", "QuickGELU", "RMSLayerNorm", "SquareReLU"]


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x)."""

    def forward(self, x):
        return quick_gelu(x)


class SquareReLU(nn.Module):
    """relu(x) squared."""

    def forward(self, x):
        return square_relu(x)


class RMSLayerNorm(nn.Module):
    """RMS norm over the last dimension with a weight of ones, as T5 has it.

    Deprecated in OneFlow for RMSNorm.
    """

    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        warnings.warn("oneflow.nn.RMSLayerNorm is deprecated: use oneflow.nn.RMSNorm", stacklevel=2)
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        return norm.rms_layer_norm(hidden_states, self.weight, self.variance_epsilon)


class CombinedMarginLoss(nn.Module):
    """forward(x, label) -> the cosines x with the label's entry replaced by cos(m1 * acos(x) + m2) - m3, in
    training and evaluation.
    """

    def __init__(self, m1=1.0, m2=0.0, m3=0.0):
        super().__init__()
        self.m1, self.m2, self.m3 = m1, m2, m3

    def forward(self, x, label):
        return losses.combined_margin_loss(x, label, self.m1, self.m2, self.m3)
