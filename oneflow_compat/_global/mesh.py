"""Placements and SBP as torch's meshes and placements, and the shards of ordinary tensors.

Only this file translates placement <-> DeviceMesh and sbp <-> Shard, Replicate, Partial.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.tensor import DeviceMesh, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement as TorchPlacement

from .. import _processes, sbp
from .._active import capturing
from . import collectives
from .collectives import add_mesh, checking, immediately
from .failures import transfer
from .placement import placement as Placement
from .process_group import start
from .rules import ranks_without_data

# --------------------------------------------------------------------------- meshes
placement_of_mesh: dict[DeviceMesh, Placement] = {}
group_of_mesh: dict[DeviceMesh, dist.ProcessGroup] = {}  # the process group of the ranks of a mesh
# mesh -> (its index among all meshes, the same on every rank; functions that count this rank's collectives)
counters: dict[DeviceMesh, tuple[int, list[Callable[[], int]]]] = {}


@functools.cache
def mesh_of(placement: Placement) -> DeviceMesh:
    """Return the mesh of a placement. The first call starts the process group."""
    ranks, world = placement.ranks, _processes.get_world_size()
    with checking("placement", sends=True) as request:
        check_world(placement)
        request.must_match(placement=placement)
    with immediately(), transfer("placement"):
        start()
        mesh = DeviceMesh(placement.type, ranks.tolist())
        group: Any = (
            dist.group.WORLD if ranks.size == world else dist.new_group(sorted(ranks.ravel().tolist()))
        )
        groups: list[Any] = [group]
        if is_member(mesh):
            groups += mesh.get_all_groups()
        else:
            ranks_without_data.same_rules()
    placement_of_mesh[mesh], group_of_mesh[mesh] = placement, group
    groups = [g for g in groups if isinstance(g, dist.ProcessGroup)]
    index = add_mesh(ranks.ravel().tolist(), groups)
    counters[mesh] = (
        index,
        [g._get_sequence_number_for_group for g in groups if hasattr(g, "_get_sequence_number_for_group")],
    )
    return mesh


def sent(mesh: DeviceMesh) -> int:
    """Return the count of collectives that this rank has begun on the ranks of a mesh."""
    return sum(count() for count in counters[mesh][1])


def note(mesh: DeviceMesh, event: str) -> None:
    """Record an event on tensors of a mesh. The next exchange compares the records of its ranks."""
    collectives.note(counters[mesh][0], event)


def check_world(placement: Placement) -> None:
    """Raise RuntimeError if a placement names ranks that do not exist."""
    last, world = placement.ranks.max(), _processes.get_world_size()
    if last >= world:
        raise RuntimeError(
            f"{placement!r} names rank {last}, there are {world}; start more processes with"
            " oneflow.distributed.launch"
        )


DTYPES = sorted((d for d in vars(torch).values() if isinstance(d, torch.dtype)), key=str)


def to_torch(nd_sbp: Sequence[sbp.sbp]) -> list[TorchPlacement]:
    """Return torch's placements of an SBP."""
    return [
        Shard(r._dim) if r._kind == "split" else Replicate() if r._kind == "broadcast" else Partial()
        for r in nd_sbp
    ]


def sbp_of(placements: Sequence[TorchPlacement]) -> tuple[sbp.sbp, ...]:
    """Return the SBP of torch's placements."""
    return tuple(map(_sbp_along_one_dimension, placements))


def _sbp_along_one_dimension(placement: TorchPlacement) -> sbp.sbp:
    if isinstance(placement, Shard):
        return sbp.split(placement.dim)
    return sbp.partial_sum if isinstance(placement, Partial) else sbp.broadcast


def summed(nd_sbp: Sequence[sbp.sbp]) -> tuple[sbp.sbp, ...]:
    """Return the sbp of a gradient: the gradient of a partial tensor is replicated."""
    return tuple(sbp.broadcast if r._kind == "partial_sum" else r for r in nd_sbp)


def first_rank(mesh: DeviceMesh) -> int:
    """Return the first rank of a mesh."""
    return int(placement_of_mesh[mesh].ranks.flat[0])


def is_member(mesh: DeviceMesh) -> bool:
    """Whether this rank is in the mesh."""
    return mesh.get_coordinate() is not None


# --------------------------------------------------------------------------- shards
def broadcast_from(tensor: torch.Tensor, source: int, group: dist.ProcessGroup) -> torch.Tensor:
    """Return the tensor of rank `source` on every rank of the group."""
    received: torch.Tensor = funcol.wait_tensor(
        funcol.broadcast(tensor.contiguous(), dist.get_group_rank(group, source), group)
    )
    return received.view(tensor.shape)


def shard_of(full: torch.Tensor, mesh: DeviceMesh, targets: Sequence[TorchPlacement]) -> torch.Tensor:
    """Return this rank's shard of a tensor that every rank has."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return torch.empty((0,) * full.dim(), dtype=full.dtype, device=full.device)
    return shard_at(full, mesh.shape, targets, coordinate).contiguous().clone()


def shard_at(
    full: torch.Tensor, sizes: Sequence[int], targets: Sequence[TorchPlacement], coordinate: Sequence[int]
) -> torch.Tensor:
    """Return the shard of the rank at a coordinate of a grid of ranks."""
    for target, size, index in zip(targets, sizes, coordinate):
        if isinstance(target, Shard):
            chunks = full.chunk(size, target.dim)
            full = chunks[index] if index < len(chunks) else full.narrow(target.dim, 0, 0)
        elif isinstance(target, Partial) and index:
            full = torch.zeros_like(full)
    return full


def shard_of_rank(
    full: torch.Tensor, placement: Placement, nd_sbp: Sequence[sbp.sbp], rank: int
) -> torch.Tensor:
    """Return the shard of a full tensor that a rank of the placement has."""
    coordinate = [int(i[0]) for i in (placement.ranks == rank).nonzero()]
    return shard_at(full, placement.ranks.shape, to_torch(nd_sbp), coordinate)


# --------------------------------------------------------------------------- random values
@contextlib.contextmanager
def same_random_values(
    group: dist.ProcessGroup | None = None, source: int = 0, offset: int = 0
) -> Iterator[None]:
    """Let the ranks of a group sample the same values in the block.

    Afterwards each rank's own random stream continues. A graph records this.
    """
    seed: Any = torch.randint(1 << 31, (1,))
    group = group or dist.group.WORLD
    assert group is not None  # the first global tensor started the process group
    if dist.get_world_size(group) > 1:
        with transfer("random numbers of a global tensor"):
            seed = broadcast_from(seed, source, group)
    state = torch.get_rng_state()
    torch.random.default_generator.manual_seed((seed if capturing() else int(seed)) + offset)
    try:
        yield
    finally:
        torch.set_rng_state(state)


def becomes_summands(sources: Sequence[TorchPlacement], targets: Sequence[TorchPlacement], axis: int) -> bool:
    """Whether only a shard along one mesh dimension becomes partial.

    The shards, padded with zeros, are then the summands of the partial tensor, in OneFlow's form.
    """
    own = sources[axis]
    return (
        isinstance(own, Shard)
        and all(p == t for i, (p, t) in enumerate(zip(sources, targets)) if i != axis)
        and sum(isinstance(p, Shard) and p.dim == own.dim for p in sources) == 1
    )


def padded_shard(shard: torch.Tensor, own: Any, shape: Sequence[int], ranks: int, rank: int) -> torch.Tensor:
    """Return the shard of a rank of a mesh dimension in a full tensor of zeros; `own` is its placement."""
    dim = own.dim
    step = -(-shape[dim] // ranks)
    out = shard.new_zeros((*shard.shape[:dim], shape[dim], *shard.shape[dim + 1 :]))
    out.narrow(dim, min(rank * step, shape[dim]), shard.shape[dim]).copy_(shard)
    return out
