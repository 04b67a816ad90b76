"""Gradient clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any


class by_global_norm:
    """Scale all gradients of the optimizer by clip_norm / max(global norm, clip_norm)."""

    def __init__(self, clip_norm: Any) -> None:
        self.clip_norm = clip_norm

    @property
    def clip_conf(self) -> Any:
        return {"clip_by_global_norm": {"clip_norm": self.clip_norm}}

    def clip(self, grads: Any) -> Any:
        squares = [g.float().square().sum() for g in grads]
        norm = torch.stack([s.to(squares[0].device) for s in squares]).sum().sqrt()
        factor = self.clip_norm / torch.clamp(norm, min=self.clip_norm)
        return [g * factor.to(g.device, g.dtype) for g in grads]
