"""The current CUDA device, also where there is no CUDA: there the calls say what OneFlow says, and wait for
nothing.
"""

from __future__ import annotations

import torch

from .._processes import get_local_rank

__all__ = ["current_device", "set_device", "synchronize"]


def current_device() -> int:
    """Index of the current CUDA device; without CUDA the number of this process on its node, as
    in OneFlow.
    """
    if torch.cuda.is_available():
        return torch.cuda.current_device()

    return get_local_rank()


def set_device(device: torch.device | str | int) -> None:
    """torch.cuda.set_device; without CUDA only the index that `current_device` gives is accepted, and nothing
    follows.

    ValueError for another index, and for a device that is not a CUDA device.
    """
    if torch.cuda.is_available():
        torch.cuda.set_device(device)
        return
    device = device if isinstance(device, int) else torch.device(device)
    index = device if isinstance(device, int) else device.index
    if isinstance(device, torch.device) and device.type != "cuda":
        raise ValueError(f"set_device() takes a CUDA device or its index, found {device}")
    if index is not None and index >= 0 and index != current_device():
        raise ValueError(
            f"set_device({index}): without CUDA the only index is {current_device()}, the number of this"
            " process on its node"
        )


def synchronize(device: torch.device | str | int | None = None) -> None:
    """torch.cuda.synchronize; without CUDA there is nothing to wait for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize(device)
