"""oneflow.multiprocessing: torch.multiprocessing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn

from .. import _bind

if TYPE_CHECKING:
    import torch


def unlink_all_shared_memory() -> None:
    """Nothing to do: torch's file-descriptor strategy leaves no names behind; each block goes with its last
    handle.
    """


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.multiprocessing")
