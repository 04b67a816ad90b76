"""Moves between the stages of a pipeline, in which only the ranks that have or need the data take part.

Another move between placements is a broadcast to all ranks, after which no rank is ahead of the others. Here
a rank sends its data and goes on. For example, on two stages of two ranks each, split in the same manner:

    x on [0, 1] under split(0)  ->  x on [2, 3] under split(0):   rank 0 sends to rank 2, and rank 1 to rank 3

Each pair of placements has process groups of its own, one for each route. So the order of the moves in one
direction does not depend on that in the other direction.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DeviceMesh, Replicate
from torch.distributed.tensor.placement_types import Placement as TorchPlacement

from .. import _processes
from .collectives import immediately
from .failures import transfer
from .mesh import broadcast_from, first_rank, is_member, placement_of_mesh
from .process_group import current, timeout
from .shards import shard_at, shard_of
from .stage_routes import Route, routes

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def moved_shard(dtensor: DTensor, mesh: DeviceMesh, targets: Sequence[TorchPlacement]) -> torch.Tensor:
    """Return this rank's shard of a DTensor on another mesh. On a rank outside of it, all sizes are 0."""
    source = dtensor.device_mesh
    if source.shape == mesh.shape and list(dtensor.placements) == list(targets):
        return _shard_of_counterpart(dtensor, mesh, targets)
    full = dtensor.full_tensor() if is_member(source) else None
    holders, needed = _ranks(source), _ranks(mesh)
    if not (_is_replicated(dtensor) and set(needed) <= set(holders)):
        route = Route(first_rank(source), tuple(rank for rank in needed if rank != first_rank(source)))
        full = _sent(full, route, source, mesh, dtensor.shape, dtensor)
    if not is_member(mesh) or full is None:
        return _nothing(dtensor)
    return shard_of(full, mesh, targets)


def _shard_of_counterpart(
    dtensor: DTensor, mesh: DeviceMesh, targets: Sequence[TorchPlacement]
) -> torch.Tensor:
    """Return the shard that the rank at the same coordinate of the source has."""
    rank, own = _processes.get_rank(), _nothing(dtensor)
    for source, target in zip(_ranks(dtensor.device_mesh), _ranks(mesh)):
        local = dtensor._local_tensor if rank == source else None
        if source == target:
            own = dtensor._local_tensor.clone() if rank == target else own
            continue
        coordinate = mesh.get_coordinate()
        shape = dtensor.shape
        if rank == target and coordinate is not None:
            whole = torch.empty(dtensor.shape, device="meta")
            shape = shard_at(whole, mesh.shape, targets, coordinate).shape
        received = _sent(local, Route(source, (target,)), dtensor.device_mesh, mesh, shape, dtensor)
        own = received if rank == target and received is not None else own
    return own


def _sent(
    value: torch.Tensor | None,
    route: Route,
    source: DeviceMesh,
    mesh: DeviceMesh,
    shape: Sequence[int],
    like: DTensor,
) -> torch.Tensor | None:
    """Send a value along a route. Return it on the ranks that have it then, and None on the others."""
    group, rank = _group_of(route, source, mesh), _processes.get_rank()
    if rank != route.source and rank not in route.targets:
        return value
    with transfer("to_global"):
        if rank == route.source:
            assert value is not None, "the rank that sends is in the mesh"
            broadcast_from(value, route.source, group)
            return value
        empty = torch.empty(tuple(shape), dtype=like.dtype, device=like._local_tensor.device)
        return broadcast_from(empty, route.source, group)


@functools.cache
def _group_of(route: Route, source: DeviceMesh, mesh: DeviceMesh) -> dist.ProcessGroup:
    """Return the process group of a route. Every rank makes it, in the same order."""
    with immediately(), transfer("placement"):
        group: Any = dist.new_group(sorted((route.source, *route.targets)), timeout=timeout())
    if isinstance(group, dist.ProcessGroup):
        current().groups.append(group)
        routes[group.group_name] = route
    return group  # type: ignore[no-any-return]


def _ranks(mesh: DeviceMesh) -> list[int]:
    ranks: list[int] = placement_of_mesh[mesh].ranks.ravel().tolist()
    return ranks


def _is_replicated(dtensor: DTensor) -> bool:
    return all(isinstance(p, Replicate) for p in dtensor.placements)


def _nothing(like: DTensor) -> torch.Tensor:
    return torch.empty((0,) * len(like.shape), dtype=like.dtype, device=like._local_tensor.device)
