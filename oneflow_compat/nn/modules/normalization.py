"""RMSNorm with OneFlow's default eps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from ... import _bind
from ._same import SameAsTorch

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["RMSNorm"]


class RMSNorm(nn.RMSNorm, metaclass=SameAsTorch):
    """torch's RMSNorm; `eps` is 1e-5 by default (torch: the dtype's machine epsilon)."""

    _torch_class = nn.RMSNorm
    _blank = (0,)

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-05,
        elementwise_affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.normalization", classes=True)
