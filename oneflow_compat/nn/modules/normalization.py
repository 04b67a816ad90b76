"""RMSNorm with OneFlow's default eps."""

from __future__ import annotations

from torch import nn

from ... import _bind
from ._same import SameAsTorch

__all__ = ["RMSNorm"]


class RMSNorm(nn.RMSNorm, metaclass=SameAsTorch):
    """torch's RMSNorm; `eps` is 1e-5 by default (torch: the dtype's machine epsilon)."""

    _torch_class = nn.RMSNorm
    _blank = (0,)

    def __init__(self, normalized_shape, eps=1e-05, elementwise_affine=True, device=None, dtype=None):
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.normalization", classes=True)
