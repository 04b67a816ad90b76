"""The placements of global tensors of several ranks: predicates, and the placements that OneFlow has."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard
from torch.utils import _pytree as pytree

from ..global_dtensor import GlobalDTensor
from ..mesh import placement_of_mesh
from ..shards import local_as_dtensor


def partial_dims(value: Any) -> tuple[int, ...]:
    """Return the mesh dimensions along which a value is partial."""
    return tuple(i for i, p in enumerate(getattr(value, "placements", ())) if p.is_partial())


def is_sharded(tensor: Any) -> bool:
    """Whether a value is a tensor that is sharded along some dimension."""
    return any(isinstance(p, Shard) for p in getattr(tensor, "placements", ()))


def with_supported_placements(tensor: DTensor) -> GlobalDTensor:
    """Return a result of DTensor under placements that OneFlow has.

    Partial means become partial sums; other partial results are reduced.
    """
    mesh = tensor.device_mesh
    targets: list[Any] = list(tensor.placements)
    if tensor.dtype is torch.bool and any(p.is_partial() and p.reduce_op == "sum" for p in targets):
        return _count_as_bool(tensor)
    local = tensor._local_tensor
    for i, (target, size) in enumerate(zip(targets, mesh.shape)):
        if type(target) is Partial and target.reduce_op == "avg":
            local, targets[i] = local / size, Partial()
    if local is not tensor._local_tensor:
        tensor = local_as_dtensor(local, mesh, targets, tensor.shape, tensor.stride())
    supported = [p if _is_supported(p) else Replicate() for p in targets]
    return GlobalDTensor(tensor.redistribute(placements=supported) if supported != targets else tensor)


def _is_supported(target: Any) -> bool:
    return type(target) in (Shard, Replicate) or type(target) is Partial and target.reduce_op == "sum"


def _count_as_bool(tensor: DTensor) -> GlobalDTensor:
    """Sum the partial result of any() as integers: two true summands do not count as two."""
    mesh, targets = tensor.device_mesh, tensor.placements
    counts: Any = local_as_dtensor(tensor._local_tensor.int(), mesh, targets, tensor.shape, tensor.stride())
    replicated = [Replicate() if p.is_partial() else p for p in targets]
    return GlobalDTensor(counts.redistribute(placements=replicated) != 0)


def is_mean_of_shards(out: Any) -> bool:
    """Whether a result is the mean of the shards' means.

    It is the mean of the full tensor only if all shards have the same size.
    """
    return any(
        type(p) is Partial and p.reduce_op == "avg"
        for t in pytree.tree_leaves(out)
        if isinstance(t, DTensor)
        for p in t.placements
    )


def has_even_shards(tensor: GlobalDTensor) -> bool:
    """Whether all shards of a tensor have the same size."""
    return all(
        tensor.shape[p.dim] % size == 0
        for p, size in zip(tensor.placements, tensor.device_mesh.shape)
        if isinstance(p, Shard)
    )


def has_empty_shard(tensor: Any) -> bool:
    """Whether some rank has no elements of a tensor."""
    return isinstance(tensor, GlobalDTensor) and _empty_shards(
        tuple(tensor.shape), tensor.placements, tensor.device_mesh.shape
    )


@functools.cache
def _empty_shards(shape: Sequence[int], placements: Sequence[Any], sizes: Sequence[int]) -> bool:
    lengths_of_dims = [{n} for n in shape]  # the lengths of the shards along each dimension
    for p, size in zip(placements, sizes):
        if isinstance(p, Shard):
            lengths_of_dims[p.dim] = {
                max(0, min(-(-n // size), n + i * (n // -size)))
                for n in lengths_of_dims[p.dim]
                for i in range(size)
            }
    return any(0 in lengths for lengths in lengths_of_dims)


def mesh_of_all(func: Any, tree: Any) -> DeviceMesh:
    """Return the mesh of all global tensors. Raise RuntimeError if they have several."""
    mesh: DeviceMesh = None  # type: ignore[assignment]  # one of the arguments is global
    for t in pytree.tree_leaves(tree):
        if isinstance(t, GlobalDTensor):
            if mesh is not None and t.device_mesh != mesh:
                raise RuntimeError(
                    f"{func}: expected all tensors on the same placement, found"
                    f" {placement_of_mesh[mesh]!r} and {placement_of_mesh[t.device_mesh]!r}; move"
                    " one with to_global"
                )
            mesh = t.device_mesh
    return mesh
