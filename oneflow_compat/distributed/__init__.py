"""oneflow.distributed: torch.distributed, with get_local_rank and a rank and size without a process group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn

import torch.distributed as _dist

from .. import _bind, _processes
from ..env import is_multi_client  # the path in 0.5

if TYPE_CHECKING:
    import torch


def get_local_rank() -> int:
    """Number of this process on its node."""
    return _processes.get_local_rank()


def get_rank(group: Any = None) -> int:
    """torch.distributed.get_rank, 0 before a process group exists."""
    return _dist.get_rank(group) if _dist.is_available() and _dist.is_initialized() else _processes.get_rank()


def get_world_size(group: Any = None) -> int:
    """torch.distributed.get_world_size, the launcher's number before a process group exists."""
    return (
        _dist.get_world_size(group)
        if _dist.is_available() and _dist.is_initialized()
        else _processes.get_world_size()
    )


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.distributed")
