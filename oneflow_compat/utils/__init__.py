"""oneflow.utils: torch.utils, with OneFlow's global_view, tensor, vision and model_zoo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn

from .. import _bind
from .tensor import from_torch, to_torch

if TYPE_CHECKING:
    import torch


def load_library(val: str) -> None:
    """Load a library of custom operators (a .so with TORCH_LIBRARY registrations) into torch.ops; "" loads
    nothing.
    """
    import torch

    if val:
        torch.ops.load_library(val)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.utils")
