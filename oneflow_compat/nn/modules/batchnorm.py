"""BatchNorm1d, 2d and 3d, which train with one value per channel too, and have a right gradient where a size
is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ... import _bind
from ..._ops.nn.norm import batch_norm_of_one_value, with_right_gradient
from ._same import SameAsTorch

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"]


def _forward(torchs: Callable[..., torch.Tensor], module: Any, x: torch.Tensor) -> torch.Tensor:
    """torch's forward; where it refuses one value per channel, OneFlow's result."""
    try:
        return with_right_gradient(lambda x: torchs(module, x), x)
    except ValueError:
        module._check_input_dim(x)
        if module.momentum is None or x.numel() != x.shape[1]:
            raise
    return batch_norm_of_one_value(
        x, module.running_mean, module.running_var, module.weight, module.bias, module.momentum, module.eps
    )


class BatchNorm1d(nn.BatchNorm1d, metaclass=SameAsTorch):
    """torch's BatchNorm1d; also trains on one value per channel, an input (1, C) or (1, C, 1): the result is
    the bias.
    """

    _torch_class = nn.BatchNorm1d
    _blank = (1,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _forward(nn.BatchNorm1d.forward, self, x)


class BatchNorm2d(nn.BatchNorm2d, metaclass=SameAsTorch):
    """torch's BatchNorm2d; also trains on one value per channel, an input (1, C, 1, 1): the result is the
    bias.
    """

    _torch_class = nn.BatchNorm2d
    _blank = (1,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _forward(nn.BatchNorm2d.forward, self, x)


class BatchNorm3d(nn.BatchNorm3d, metaclass=SameAsTorch):
    """torch's BatchNorm3d; also trains on one value per channel, an input (1, C, 1, 1, 1): the result is the
    bias.
    """

    _torch_class = nn.BatchNorm3d
    _blank = (1,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _forward(nn.BatchNorm3d.forward, self, x)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.batchnorm", classes=True)
