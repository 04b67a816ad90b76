"""Dropout with its own generator and with an addend."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

__all__ = ["dropout", "generated"]


def dropout(
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    generator: torch.Generator | None = None,
    *,
    addend: torch.Tensor | None = None,
) -> torch.Tensor:
    """Dropout; differs from torch's: random numbers from `generator`, and `addend` is added to the result."""
    out = (
        F.dropout(input, p, training, inplace)
        if generator is None
        else generated(input, p, training, inplace, generator)
    )
    return out if addend is None else out + addend


def generated(
    input: torch.Tensor,
    p: float,
    training: bool,
    inplace: bool,
    generator: torch.Generator | None,
    shape: Sequence[int] | None = None,
) -> torch.Tensor:
    """Dropout whose mask, of `shape` (default: the input's), is sampled from `generator`."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    mask = torch.zeros(shape or input.shape, dtype=input.dtype, device=input.device)
    if p < 1.0:
        mask.bernoulli_(1.0 - p, generator=generator).div_(1.0 - p)
    return input.mul_(mask) if inplace else input * mask
