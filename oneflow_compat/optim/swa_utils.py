"""oneflow.optim.swa_utils: torch's, with OneFlow's fourth argument `use_buffers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.optim.swa_utils as _torch
from torch.optim.swa_utils import SWALR, update_bn

from .._bind import fall_through as _ft

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


__all__ = ["AveragedModel", "SWALR", "update_bn"]


class AveragedModel(_torch.AveragedModel):
    """torch's AveragedModel; a callable in the fourth place is torch's `multi_avg_fn`."""

    def __init__(
        self,
        model: torch.nn.Module,
        device: torch.device | str | int | None = None,
        avg_fn: Callable[..., Any] | None = None,
        use_buffers: bool | Callable[..., Any] = False,
        multi_avg_fn: Any = None,
    ) -> None:
        if callable(use_buffers):
            use_buffers, multi_avg_fn = (multi_avg_fn or False), use_buffers
        super().__init__(model, device, avg_fn, multi_avg_fn, use_buffers=use_buffers)


__getattr__, __dir__ = _ft(__name__, "torch.optim.swa_utils")
