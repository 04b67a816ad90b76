"""Shared by to_global and to_local of nested containers."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from ..._global.collectives import from_rank
from ..._global.placement import placement as Placement
from ..._errors import RefusedValue
from ... import _processes


def check_input_global(input) -> bool:
    """Is every tensor inside global? ValueError when some are and some are not."""
    kinds = {t.is_global for t in pytree.tree_leaves(input) if isinstance(t, torch.Tensor)}
    if len(kinds) > 1:
        raise ValueError("some tensors are global and some are local; make them all the same first")
    return kinds == {True}


def check_placement_on_all_ranks(placement: Placement):
    """ValueError unless the placement holds every rank."""
    if sorted(placement.ranks.ravel().tolist()) != list(range(_processes.get_world_size())):
        raise ValueError(
            f"the placement must hold all {_processes.get_world_size()} ranks, found {placement!r}"
        )


def src_sbp_broadcast(obj, src=0):
    """Rank `src`'s object on every rank."""
    if _processes.get_world_size() == 1:
        return obj
    return from_rank(src, lambda: obj, "broadcast of an object")


def to_global_tensor(input_tensor, placement=None, sbp=None, **kwargs):
    """One tensor of the container; `sbp` may be a function of the tensor.

    ValueError for a local tensor without both.
    """
    if not input_tensor.is_global and (placement is None or sbp is None):
        raise RefusedValue(
            f"to_global() of a local tensor needs a placement and an sbp, found placement={placement!r},"
            f" sbp={sbp!r}"
        )
    return input_tensor.to_global(
        placement, sbp(input_tensor) if callable(sbp) and not hasattr(sbp, "_kind") else sbp, **kwargs
    )


def to_local_tensor(input_tensor, copy):
    return input_tensor.to_local(copy=copy)
