"""flow.profiler: ranges in an NVTX trace; without CUDA they do nothing but keep their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any


_open: list[Any] = []


def _nvtx() -> Any:
    return torch.cuda.nvtx if torch.cuda.is_available() else None


def range_push(range_name: str) -> None:
    """Open a range."""
    _open.append(range_name)
    if _nvtx() is not None:
        _nvtx().range_push(range_name)


def range_pop() -> None:
    """Close the innermost range; RuntimeError when none is open."""
    if not _open:
        raise RuntimeError("profiler.range_pop: no range is open")
    _open.pop()
    if _nvtx() is not None:
        _nvtx().range_pop()


def nvtx_start(x: torch.Tensor, mark_prefix: str, name: str | None = None) -> torch.Tensor:
    """Return the blob itself.

    A captured job is one program, so a range inside it has no position in time; use torch.profiler.
    """
    return x


def nvtx_end(x: torch.Tensor, mark_prefix: str, name: str | None = None) -> torch.Tensor:
    return x
