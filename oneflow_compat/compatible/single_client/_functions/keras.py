"""flow.keras of 0.1: functions of flow.math under Keras's names."""

from __future__ import annotations

import torch

__all__ = ["relu"]


def relu(
    x: torch.Tensor,
    alpha: float = 0.0,
    max_value: float | None = None,
    threshold: float = 0.0,
    name: str | None = None,
) -> torch.Tensor:
    """Return max(x, 0). ValueError for another alpha, max_value or threshold than the default, as in 0.1."""
    if alpha != 0 or max_value is not None or threshold != 0:
        raise ValueError(
            "keras.activations.relu takes alpha=0, max_value=None and threshold=0 only, found"
            f" {alpha}, {max_value} and {threshold}; use nn.leaky_relu or clip_by_value"
        )
    return torch.relu(x)
