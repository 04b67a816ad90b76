"""oneflow.profiler: torch.profiler, with OneFlow's range functions."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import torch

from .. import _bind
from .events import named as _named

if TYPE_CHECKING:
    from collections.abc import Iterable


def range_push(range_name: str) -> None:
    """Open a named range: an NVTX range on CUDA, a record_function region otherwise."""
    if torch.cuda.is_available():
        torch.cuda.nvtx.range_push(range_name)
    region = torch.profiler.record_function(range_name)
    region.__enter__()
    _regions.append(region)


def range_pop() -> None:
    """Close the range opened last; RuntimeError when none is open."""
    if not _regions:
        raise RuntimeError("profiler.range_pop(): no range is open; call range_push(name) first")
    _regions.pop().__exit__(None, None, None)
    if torch.cuda.is_available():
        torch.cuda.nvtx.range_pop()


_regions: list = []


def profiler_start() -> None:
    """Start the CUDA profiler; without CUDA a warning, and nothing happens."""
    if _has_cuda("profiler_start"):
        torch.cuda.profiler.start()


def profiler_stop() -> None:
    """Stop the CUDA profiler; without CUDA a warning, and nothing happens."""
    if _has_cuda("profiler_stop"):
        torch.cuda.profiler.stop()


def _has_cuda(name: str) -> bool:
    if not torch.cuda.is_available():
        warnings.warn(
            f"profiler.{name}() steers the CUDA profiler, and there is no CUDA device; use"
            " oneflow.profiler.profile()",
            stacklevel=3,
        )
        return False
    return True


class profile(torch.profiler.profile):
    """torch.profiler.profile; `record_attrs` and `record_bandwidth_for_cuda` are accepted and add nothing.

    `key_averages(group_by_input_shape, group_by_attributes)` groups as torch does; its items are KernelEvents
    (operators)
    and CustomEvents (ranges) too, with OneFlow's `name` and `input_shapes`.
    """

    def __init__(
        self,
        activities: Iterable[torch.profiler.ProfilerActivity] | None = None,
        record_shapes: bool = False,
        record_attrs: bool = False,
        record_bandwidth_for_cuda: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(activities=activities, record_shapes=record_shapes, **kwargs)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_attributes: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        return _named(super().key_averages(group_by_input_shape, *args, **kwargs))


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.profiler")
