"""oneflow._oneflow_internal.remat: the counters of OneFlow's rematerialisation.

Nothing is evicted here (difference row remat-runtime).

The counters are what happened: zero. A request to evict raises.
"""

from __future__ import annotations

from typing import NoReturn

import torch

from .._errors import unsupported


def recomputation_num() -> int:
    """Tensors computed again after an eviction: 0."""
    return 0


def eager_eviction_num() -> int:
    """Evictions ahead of need: 0."""
    return 0


def forced_eviction_num() -> int:
    """Evictions for want of memory: 0."""
    return 0


def clear_stats() -> None:
    """The counters stand at zero already."""


def is_in_memory(tensor: torch.Tensor) -> bool:
    """Return True if the tensor holds its elements, which no tensor on the meta device does."""
    return not tensor.is_meta


def disable_eviction(tensor: torch.Tensor) -> None:
    """Nothing to do: a tensor stays in memory as long as it is referenced."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"disable_eviction() takes a tensor, found {type(tensor).__name__}")


def evict(tensor: torch.Tensor) -> NoReturn:
    """UnsupportedError."""
    raise unsupported(
        "remat.evict()",
        "remat-runtime",
        "Delete the tensor, or use torch.utils.checkpoint to recompute activations.",
    )


def allocated_memory(device: torch.device | str) -> int:
    """Bytes of tensors on a CUDA device; UnsupportedError for the CPU, which torch does not count."""
    device = torch.device(device)
    if device.type != "cuda":
        raise unsupported(
            f"remat.allocated_memory({str(device)!r})", "remat-runtime", "Memory is counted on CUDA devices."
        )
    return torch.cuda.memory_allocated(device)


def display(device: torch.device | str) -> None:
    """Print what torch knows of the device's memory."""
    device = torch.device(device)
    print(
        torch.cuda.memory_summary(device)
        if device.type == "cuda"
        else f"{device}: nothing was evicted; memory is counted on CUDA devices only"
    )
