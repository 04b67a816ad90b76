"""FusedMLP and FusedBatchNorm: layers whose steps OneFlow runs as one kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..._kernels import matmul, norm

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["FusedBatchNorm1d", "FusedBatchNorm2d", "FusedBatchNorm3d", "FusedMLP"]


class FusedMLP(nn.Module):
    """Linear layers with ReLU and dropout between them: in_features -> hidden_features... -> out_features.

    hidden_dropout_rate: one rate a hidden layer, or None (or []); out_dropout_rate and, unless
    skip_final_activation, a ReLU follow
    the last layer. Dropout only in training. Parameters weight_i (out, in) and bias_i, uniform within
    1/sqrt(in).

    ValueError unless there is one rate for each hidden layer.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: Sequence[int],
        out_features: int,
        hidden_dropout_rate: Sequence[float] | None = None,
        out_dropout_rate: float = 0.0,
        skip_final_activation: bool = False,
    ) -> None:
        super().__init__()
        self.in_features, self.hidden_features, self.out_features = (
            in_features,
            list(hidden_features),
            out_features,
        )
        self.skip_final_activation = skip_final_activation
        self.hidden_layer_num = len(self.hidden_features)
        rates = list(hidden_dropout_rate or [0.0] * self.hidden_layer_num)
        if len(rates) != self.hidden_layer_num:
            raise ValueError(
                f"FusedMLP: one dropout rate for each of the {self.hidden_layer_num} hidden layers, found"
                f" {len(rates)}"
            )
        self.dropout_rate_list = rates + [out_dropout_rate]
        self.add_parameters()
        self.reset_parameters()

    def add_parameters(self) -> None:
        """Create weight_i and bias_i, uninitialized."""
        sizes = [self.in_features, *self.hidden_features, self.out_features]
        for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
            self.register_parameter(f"weight_{i}", nn.Parameter(torch.empty(b, a)))
            self.register_parameter(f"bias_{i}", nn.Parameter(torch.empty(b)))

    def weight(self, i: int) -> torch.Tensor:
        """The i-th weight."""
        return getattr(self, f"weight_{i}")

    def weights(self) -> list[torch.Tensor]:
        """All weights in order."""
        return [self.weight(i) for i in range(self.hidden_layer_num + 1)]

    def bias(self, i: int) -> torch.Tensor:
        """The i-th bias."""
        return getattr(self, f"bias_{i}")

    def biases(self) -> list[torch.Tensor]:
        """All biases in order."""
        return [self.bias(i) for i in range(self.hidden_layer_num + 1)]

    def reset_parameters(self) -> None:
        """Uniform within 1/sqrt(in) for weights and biases."""
        for w, b in zip(self.weights(), self.biases()):
            bound = 1 / math.sqrt(w.shape[1]) if w.shape[1] else 0
            nn.init.uniform_(w, -bound, bound)
            nn.init.uniform_(b, -bound, bound)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or not any(self.dropout_rate_list):
            return matmul.fused_mlp(x, self.weights(), self.biases(), self.skip_final_activation)
        return matmul.fused_matmul_bias_add_relu_dropout(
            x, self.weights(), self.biases(), self.skip_final_activation, self.dropout_rate_list
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, hidden_features={self.hidden_features},"
            f" out_features={self.out_features}, skip_final_activation={self.skip_final_activation}"
        )


class _FusedBatchNorm:
    """relu(batch_norm(x) + addend); the addend may be left out."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        # OneFlow's state_dict has no num_batches_tracked; a momentum is always given, so it has no use.
        if track_running_stats:
            self.num_batches_tracked = None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        is_saved = prefix + "num_batches_tracked" in state_dict
        super()._load_from_state_dict(state_dict, prefix, *args)  # type: ignore[misc]
        if not is_saved:  # torch puts it into a dict without version
            state_dict.pop(prefix + "num_batches_tracked", None)
            args[-2][:] = [key for key in args[-2] if key != prefix + "num_batches_tracked"]

    def forward(self, x: torch.Tensor, addend: torch.Tensor | None = None) -> torch.Tensor:
        self._check_input_dim(x)
        if addend is not None and addend.shape != x.shape:
            raise RuntimeError(
                f"{type(self).__name__}: the addend must have the input's shape {tuple(x.shape)}, found"
                f" {tuple(addend.shape)}"
            )
        training = self.training or self.running_mean is None
        mean, var = (self.running_mean, self.running_var) if self.track_running_stats else (None, None)
        return norm.normalization_add_relu(
            x, addend, mean, var, self.weight, self.bias, 1, self.eps, self.momentum, training
        )


class FusedBatchNorm1d(_FusedBatchNorm, nn.BatchNorm1d):  # type: ignore[misc]
    __doc__ = f"{_FusedBatchNorm.__doc__} x (N, C) or (N, C, L)."


class FusedBatchNorm2d(_FusedBatchNorm, nn.BatchNorm2d):  # type: ignore[misc]
    __doc__ = f"{_FusedBatchNorm.__doc__} x (N, C, H, W)."


class FusedBatchNorm3d(_FusedBatchNorm, nn.BatchNorm3d):  # type: ignore[misc]
    __doc__ = f"{_FusedBatchNorm.__doc__} x (N, C, D, H, W)."
