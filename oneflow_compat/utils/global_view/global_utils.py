"""Functions that to_global and to_local of nested containers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from ... import _processes
from ..._errors import RefusedValue
from ..._global.collectives import from_rank
from ..._global.placement import placement as Placement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...sbp import sbp as Sbp


def check_input_global(input: Any) -> bool:
    """Whether every tensor in the container is global; ValueError if some are and some are not."""
    kinds = {t.is_global for t in pytree.tree_leaves(input) if isinstance(t, torch.Tensor)}
    if len(kinds) > 1:
        raise ValueError("some tensors are global and some are local; make them all the same first")
    return kinds == {True}


def check_placement_on_all_ranks(placement: Placement) -> None:
    """Raise ValueError unless the placement holds every rank."""
    if sorted(placement.ranks.ravel().tolist()) != list(range(_processes.get_world_size())):
        raise ValueError(
            f"the placement must hold all {_processes.get_world_size()} ranks, found {placement!r}"
        )


def src_sbp_broadcast(obj: Any, src: int = 0) -> Any:
    """Return the object of rank `src` on every rank."""
    if _processes.get_world_size() == 1:
        return obj
    return from_rank(src, lambda: obj, "broadcast of an object")


def to_global_tensor(
    input_tensor: torch.Tensor,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | Callable[..., Any] | None = None,
    **kwargs: Any,
) -> torch.Tensor:
    """Make one tensor of the container global; `sbp` may be a function of the tensor.

    Raise ValueError for a local tensor without a placement and an sbp.
    """
    if not input_tensor.is_global and (placement is None or sbp is None):
        raise RefusedValue(
            f"to_global() of a local tensor needs a placement and an sbp, found placement={placement!r},"
            f" sbp={sbp!r}"
        )
    return input_tensor.to_global(
        placement, sbp(input_tensor) if callable(sbp) and not hasattr(sbp, "_kind") else sbp, **kwargs
    )


def to_local_tensor(input_tensor: torch.Tensor, copy: bool) -> torch.Tensor:
    return input_tensor.to_local(copy=copy)
