"""Operators computed on the full tensors, on every rank."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DeviceMesh
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

from .. import collectives
from ..global_dtensor import GlobalDTensor, map_tensors, replicate
from ..mesh import group_of_mesh, is_member
from ..reading import about, full_tensor
from ..shards import shard_of
from ..stage_routes import is_between_stages
from .operator_facts import UNDECLARED_WRITES

aten = torch.ops.aten


def on_full_tensors(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mesh: DeviceMesh) -> Any:
    """Run an operator on the full tensors, on every rank, and write the shards of the tensors it writes."""
    full_tensors: dict[int, tuple[GlobalDTensor, torch.Tensor]] = {}

    def full(t: GlobalDTensor) -> torch.Tensor:
        if id(t) not in full_tensors:
            full_tensors[id(t)] = (t, _full_where_needed(t) if is_between_stages() else full_tensor(t))
        return full_tensors[id(t)][1]

    out = func(*map_tensors(full, args), **map_tensors(full, kwargs))
    if is_member(mesh):
        for t in (
            written_tensors(func, args, kwargs)
            if func not in UNDECLARED_WRITES
            else [t for t in args[3:5] if t is not None]
        ):
            t._local_tensor.copy_(shard_of(full(t), mesh, t.placements))
    same = {id(value): t for t, value in full_tensors.values()}
    return pytree.tree_map_only(
        torch.Tensor, lambda o: same[id(o)] if id(o) in same else replicate(o, mesh), out
    )


def _full_where_needed(tensor: GlobalDTensor) -> torch.Tensor:
    """Return the full tensor on the ranks that have data of it. Others get a tensor of the shape only.

    In a pipeline a broadcast to all ranks would make them wait for each other.
    """
    if is_member(tensor.device_mesh):
        full: torch.Tensor = tensor._dtensor.full_tensor()
        return full
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor._local_tensor.device)


def compute_read(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute item(), bool() and equal(). The ranks agree first if the read communicates."""
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, GlobalDTensor)]
    if any(
        group_of_mesh[t.device_mesh] is not dist.group.WORLD
        or any(not p.is_replicate() for p in t.placements)
        for t in tensors
    ):
        call_name = "Tensor.item" if func is aten._local_scalar_dense.default else func._opname
        with collectives.checking(call_name) as request:
            request.must_match(tensors=[about(t) for t in tensors])
    return func(*map_tensors(full_tensor, args), **map_tensors(full_tensor, kwargs))


def on_no_elements(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a kernel on tensors without elements.

    A kernel refuses dtypes only on ranks that run it. Ranks without data have to raise as well, because a
    program may catch the error and continue.
    """

    def nothing(tensor: Any) -> torch.Tensor:
        return torch.ones((0,) * tensor.ndim, dtype=tensor.dtype)

    with no_dispatch():
        return func(
            *pytree.tree_map_only(torch.Tensor, nothing, args),
            **pytree.tree_map_only(torch.Tensor, nothing, kwargs),
        )


def written_tensors(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[GlobalDTensor]:
    """Return the global tensors among the arguments that a function writes."""
    if not func._schema.is_mutable:
        return []
    arguments = {**dict(zip((a.name for a in func._schema.arguments), args)), **kwargs}
    written = [
        arguments.get(a.name)
        for a in func._schema.arguments
        if a.alias_info is not None and a.alias_info.is_write
    ]
    return [t for t in pytree.tree_leaves(written) if isinstance(t, GlobalDTensor)]
