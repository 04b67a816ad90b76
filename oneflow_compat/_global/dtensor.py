"""Global tensors of several ranks: torch's DTensors with the semantics of OneFlow.

This module has what the rest of the package uses: the class and its functions, and the agreement of the ranks
on the shape of a new tensor. It gives the class its operators.

Every rank of the world makes the same calls, as in OneFlow. The process group starts with the first global
tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import _processes, sbp
from .collectives import checking
from .global_dtensor import (
    SBP,
    GlobalDTensor,
    _rebuild,  # noqa: F401  (pickles name it by this module)
    from_full,
    from_local_of_shape,
    from_shard,
    moved,
    to_local,
)
from .mesh import DTYPES, check_world, mesh_of, note, same_random_values, to_torch
from .placement import placement as Placement
from .reading import about, full_tensor
from .rules import operators
from .shards import shard_at, shard_of_rank
from .stored_shards import store_shards, stored_like

__all__ = [
    "GlobalDTensor",
    "about",
    "agreed_shape",
    "check_world",
    "describe_shard",
    "from_full",
    "from_local",
    "from_shard",
    "full_tensor",
    "mesh_of",
    "moved",
    "note",
    "same_random_values",
    "shard_of_rank",
    "store_shards",
    "stored_like",
    "to_local",
]

# The rules make global tensors, so they import the class; the class gets them here.
GlobalDTensor.run_operator = operators.call


def from_local(
    local: torch.Tensor, placement: Placement, nd_sbp: SBP, shape: Sequence[int] | None = None
) -> GlobalDTensor:
    """Return the global tensor whose shard on this rank is `local`.

    Without `shape`, the ranks exchange the shapes of their shards. Under broadcast, all ranks get the values
    of the first rank. Raise RuntimeError if the shards are not those that torch.chunk makes.
    """
    nd_sbp = tuple(nd_sbp)
    if shape is None:
        with checking("to_global", sends=True) as request:
            check_world(placement)
            request.must_match(placement=placement, sbp=nd_sbp)
            request.send_integers(*describe_shard(local))
        dtype, shape = agreed_shape(request.integers, placement, nd_sbp)
        if _processes.get_rank() not in placement.ranks:
            local = torch.empty(0, dtype=dtype, requires_grad=local.requires_grad)
    return from_local_of_shape(local, placement, nd_sbp, shape)


def describe_shard(local: torch.Tensor) -> list[int]:
    """Return the integers that the ranks exchange about their shards: dtype and shape."""
    return [DTYPES.index(local.dtype), *map(int, local.shape)]


def agreed_shape(
    integers: Sequence[Sequence[int]], placement: Placement, nd_sbp: SBP, name: str = "to_global"
) -> tuple[torch.dtype, list[int]]:
    """Return the dtype and the full shape of a tensor from the shapes of its shards on all ranks.

    Every rank checks the shards of all ranks, so that all ranks raise.
    """
    grid = torch.from_numpy(placement.ranks)
    ranks = grid.flatten().tolist()
    shards = {rank: (DTYPES[integers[rank][0]], tuple(integers[rank][1:])) for rank in ranks}
    dtype, shape = _common_form(shards, name)
    for d in {r._dim for r in nd_sbp if r._kind == "split"}:
        line = grid[tuple(slice(None) if r == sbp.split(d) else 0 for r in nd_sbp)]
        shape[d] = sum(shards[rank][1][d] for rank in line.flatten().tolist())
    targets = to_torch(nd_sbp)
    for rank in ranks:
        coordinate = (grid == rank).nonzero()[0].tolist()
        expected = tuple(shard_at(torch.empty(shape, device="meta"), grid.shape, targets, coordinate).shape)
        if expected != shards[rank][1]:
            each = ", ".join(f"rank {r} {own}" for r, (_, own) in shards.items())
            raise RuntimeError(
                f"{name}: rank {rank} has {shards[rank][1]}; under {tuple(nd_sbp)} its part of {tuple(shape)}"
                f" is {expected}. The parts are: {each}"
            )
    return dtype, shape


def _common_form(shards: dict[Any, Any], name: str) -> tuple[torch.dtype, list[int]]:
    """Return dtype and shape of the first rank's shard; RuntimeError if others do not match."""
    (first_rank, (dtype, shape)), *_ = shards.items()
    for rank, (own_dtype, own) in shards.items():
        if own_dtype != dtype or len(own) != len(shape):
            raise RuntimeError(
                f"{name}: rank {rank} has {own} of {own_dtype}, rank {first_rank} {shape} of {dtype};"
                " they must agree"
            )
    return dtype, list(shape)
