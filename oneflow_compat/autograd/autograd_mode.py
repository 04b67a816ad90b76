"""oneflow.autograd.autograd_mode: switches of gradient recording."""

from __future__ import annotations

from typing import Any

import torch
from torch import enable_grad, is_grad_enabled, no_grad

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"]


def set_grad_enabled(is_train: bool = True, *, mode: bool | None = None) -> torch.set_grad_enabled:
    """torch.set_grad_enabled (context manager, decorator, or plain call), with OneFlow's name of the
    argument.
    """
    return torch.set_grad_enabled(is_train if mode is None else mode)


def inference_mode(mode: Any = True) -> Any:
    """no_grad(), or enable_grad() with False, as a context manager or decorator.

    Tensors made inside are ordinary ones, as in OneFlow: they may be changed and enter autograd later
    (torch's inference tensors may not; `set_dialect("torch")` gives torch's).
    """
    if callable(mode):
        return torch.no_grad()(mode)
    return torch.no_grad() if mode else torch.enable_grad()
