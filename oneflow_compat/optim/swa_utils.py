"""oneflow.optim.swa_utils: torch's, with OneFlow's fourth argument `use_buffers`."""

from __future__ import annotations

import torch.optim.swa_utils as _torch
from torch.optim.swa_utils import SWALR, update_bn

from .._bind import fall_through as _ft

__all__ = ["AveragedModel", "SWALR", "update_bn"]


class AveragedModel(_torch.AveragedModel):
    """torch's AveragedModel; a callable in the fourth place is torch's `multi_avg_fn`."""

    def __init__(self, model, device=None, avg_fn=None, use_buffers=False, multi_avg_fn=None):
        if callable(use_buffers):
            use_buffers, multi_avg_fn = (multi_avg_fn or False), use_buffers
        super().__init__(model, device, avg_fn, multi_avg_fn, use_buffers=use_buffers)


__getattr__, __dir__ = _ft(__name__, "torch.optim.swa_utils")
