"""InstanceNorm2d and 3d, which have a right gradient."""

from __future__ import annotations

import torch
from torch import nn

from ... import _bind
from ..._ops.nn.norm import gradient_row_by_row
from ._same import SameAsTorch

__all__ = ["InstanceNorm2d", "InstanceNorm3d"]


class InstanceNorm2d(nn.InstanceNorm2d, metaclass=SameAsTorch):
    """torch's InstanceNorm2d; its gradient is right in any layout (see the difference
    batch-norm-gradient).
    """

    _torch_class = nn.InstanceNorm2d
    _blank = (1,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gradient_row_by_row(super().forward(x))


class InstanceNorm3d(nn.InstanceNorm3d, metaclass=SameAsTorch):
    """torch's InstanceNorm3d; its gradient is right in any layout (see the difference
    batch-norm-gradient).
    """

    _torch_class = nn.InstanceNorm3d
    _blank = (1,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gradient_row_by_row(super().forward(x))


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.instancenorm", classes=True)
