"""Feature interactions of recommender models (DLRM, DCN)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from . import _check, _ext, kernels, references

__all__ = ["fused_cross_feature_interaction", "fused_dot_feature_interaction"]


def fused_dot_feature_interaction(
    features: Sequence[torch.Tensor],
    output_concat: torch.Tensor | None = None,
    self_interaction: bool = False,
    output_padding: int = 0,
    pooling: str = "none",
) -> torch.Tensor:
    """Dot products of every pair of feature vectors.

    features: tensors (B, E) or (B, F_i, E), joined to (B, F, E). pooling "none": (B, pairs), the lower
    triangle row by row (with the diagonal if self_interaction), after output_concat (B, C) and before
    output_padding zeros. pooling "sum": the sum of all pairs' elementwise products, (B, E); output_concat,
    self_interaction and padding do not apply.

    RuntimeError for an output_concat of another batch, and for options that pooling "sum" does not have.
    """
    name = "fused_dot_feature_interaction"
    _check.one_of(name, "pooling", pooling, ("none", "sum"))
    x = _joined(name, features)
    if pooling == "sum":
        if output_concat is not None or self_interaction or output_padding:
            raise RuntimeError(
                f"{name}: pooling='sum' takes no output_concat, self_interaction or output_padding"
            )
        return 0.5 * (x.sum(1).square() - x.square().sum(1))
    if output_concat is not None and (output_concat.ndim != 2 or output_concat.shape[0] != x.shape[0]):
        raise RuntimeError(
            f"{name}: output_concat must be ({x.shape[0]}, size), found {tuple(output_concat.shape)}"
        )
    if x.device.type == "cpu" and _ext.use(x):  # torch's batched product is faster on a GPU
        return references.join_features(
            kernels.run.pair_dots(x, self_interaction), x, output_concat, output_padding
        )
    return references.fused_dot_feature_interaction_ref(x, output_concat, self_interaction, output_padding)


def _joined(name: str, features: Sequence[torch.Tensor]) -> torch.Tensor:
    """Join feature tensors (B, E) or (B, F_i, E) to one of (B, F, E)."""
    sizes = {(f.shape[0], f.shape[-1]) for f in features}
    if len(sizes) != 1 or any(f.ndim not in (2, 3) for f in features):
        raise RuntimeError(
            f"{name}: features must be (batch, size) or (batch, count, size) of one batch and size, found"
            f" {[tuple(f.shape) for f in features]}"
        )
    vectors = [f if f.ndim == 3 else f.unsqueeze(1) for f in features]
    return torch.cat(vectors, 1) if len(vectors) > 1 else vectors[0]


def fused_cross_feature_interaction(
    x: torch.Tensor, weight: torch.Tensor, x_0: torch.Tensor, bias: torch.Tensor, interaction_mode: str
) -> torch.Tensor:
    """A cross layer of DCN.

    "vector": x_0 * (x @ weight.T) + bias + x, weight (1, E); "matrix": x_0 * (x @ weight.T + bias) + x,
    weight (E, E).

    x and x_0 are (B, E), the bias (E,). RuntimeError for another weight or bias.
    """
    name = "fused_cross_feature_interaction"
    _check.one_of(name, "interaction_mode", interaction_mode, ("vector", "matrix"))
    rows = 1 if interaction_mode == "vector" else x.shape[-1]
    if tuple(weight.shape) != (rows, x.shape[-1]) or bias.shape[-1] != x.shape[-1]:
        raise RuntimeError(
            f"{name}: in mode {interaction_mode!r} the weight must be ({rows}, {x.shape[-1]}) and the bias"
            f" ({x.shape[-1]},), found {tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    if interaction_mode == "vector":
        return torch.addcmul(x + bias, x_0, F.linear(x, weight))
    return torch.addcmul(x, x_0, F.linear(x, weight, bias))
