"""Global tensors at the border of a captured program, which works on ordinary tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from .marks import OfSeveralRanks, several
from .placement import placement as Placement
from .tensor import first_global, make_global, mark_results, of_several_ranks


def mark_like(out: Any, args: Iterable[Any]) -> None:
    """Make the results of a captured operation global if an argument is global."""
    source = first_global(args)
    if source is not None:
        mark_results(out, source)


def without_subclasses(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `run` so that a captured program ignores placements: it works on memory."""

    def call(*args: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return run(*args)

    return call


def make_results_global(outputs: Callable[..., Any], placed: dict[Any, Any]) -> Callable[..., Any]:
    """Wrap `outputs` so that the results at the positions in `placed` are global.

    `placed` is {position: (placement, sbp, shape)}.
    """

    def make(out: Any) -> Any:
        out = [_around(o, *placed[i]) if i in placed else o for i, o in enumerate(out)]
        return outputs(out)

    return make


def _around(local: torch.Tensor, placement: Placement, nd_sbp: Any, shape: Any) -> torch.Tensor:
    if several():
        out: torch.Tensor = of_several_ranks().from_shard(local, placement, nd_sbp, shape)
        return out
    return make_global(local, placement, nd_sbp)


def wrappers() -> tuple[Any, ...]:
    """Return the classes of tensors that wrap ordinary tensors; none on one rank."""
    if not several():
        return ()
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return OfSeveralRanks, torch.distributed.tensor.DTensor, AsyncCollectiveTensor
