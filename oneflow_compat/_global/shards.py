"""Shards: this rank's data of a full tensor, and how it changes with the placements of a DTensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement as TorchPlacement

from .. import sbp
from .mesh import to_torch
from .placement import placement as Placement


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


def local_as_dtensor(
    local: torch.Tensor,
    mesh: DeviceMesh,
    targets: Sequence[TorchPlacement],
    shape: torch.Size,
    stride: tuple[int, ...],
) -> DTensor:
    """Return the DTensor with this shard."""
    if not shape and local.dim():
        # DTensor.from_local takes the local tensor's shape for (); a rank outside the mesh has an empty local
        # tensor.
        local = local.new_zeros(())
    return DTensor.from_local(local, mesh, targets, run_check=False, shape=shape, stride=stride)


def strides_in_order_of(local: torch.Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a full tensor in the memory order of its shard, row-major if that is not dense.

    Autograd decides by strides whether it can view a gradient.
    """
    order = list(range(len(shape)))
    if not local.is_contiguous():
        of_shard = sorted(order, key=local.stride, reverse=True)
        order = of_shard if local.permute(of_shard).is_contiguous() else order
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


def redistributed_shard(dtensor: DTensor, targets: Sequence[TorchPlacement]) -> torch.Tensor:
    """Return this rank's shard of a DTensor under other placements of its mesh.

    DTensor cannot make a tensor partial that is not. Then a shard is padded with zeros, or the first rank
    keeps the values and the other ranks get zeros.
    """
    mesh, before, local = dtensor.device_mesh, dtensor.placements, dtensor._local_tensor
    new_partial = [
        i
        for i, (old, new) in enumerate(zip(before, targets))
        if isinstance(new, Partial) and not isinstance(old, Partial)
    ]
    coordinate = mesh.get_coordinate()
    dim = _dim_of_summands(before, targets, new_partial[0]) if len(new_partial) == 1 else None
    if dim is not None:
        [axis] = new_partial
        if coordinate is None:
            return local
        return _padded_shard(local, dim, dtensor.shape, mesh.shape[axis], coordinate[axis])
    reachable = [Replicate() if i in new_partial else t for i, t in enumerate(targets)]
    local = dtensor.redistribute(placements=reachable)._local_tensor
    if coordinate is not None and any(coordinate[i] for i in new_partial):
        return torch.zeros_like(local)
    return local


def _dim_of_summands(
    sources: Sequence[TorchPlacement], targets: Sequence[TorchPlacement], axis: int
) -> int | None:
    """Return the dimension that is split along this mesh dimension, if nothing else changes.

    The shards, padded with zeros, are then the summands of the partial tensor, in OneFlow's form.
    """
    own = sources[axis]
    if not isinstance(own, Shard):
        return None
    is_only_change = all(p == t for i, (p, t) in enumerate(zip(sources, targets)) if i != axis)
    is_split_once = sum(isinstance(p, Shard) and p.dim == own.dim for p in sources) == 1
    return own.dim if is_only_change and is_split_once else None


def _padded_shard(shard: torch.Tensor, dim: int, shape: Sequence[int], ranks: int, rank: int) -> torch.Tensor:
    """Return the shard, along `dim`, of a rank of a mesh dimension in a full tensor of zeros."""
    step = -(-shape[dim] // ranks)
    out = shard.new_zeros((*shard.shape[:dim], shape[dim], *shard.shape[dim + 1 :]))
    out.narrow(dim, min(rank * step, shape[dim]), shard.shape[dim]).copy_(shard)
    return out
