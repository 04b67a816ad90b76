"""Placements and SBP as torch's meshes and placements.

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


# --------------------------------------------------------------------------- communication
def broadcast_from(tensor: torch.Tensor, source: int, group: dist.ProcessGroup) -> torch.Tensor:
    """Return the tensor of rank `source` on every rank of the group."""
    received: torch.Tensor = funcol.wait_tensor(
        funcol.broadcast(tensor.contiguous(), dist.get_group_rank(group, source), group)
    )
    return received.view(tensor.shape)


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
