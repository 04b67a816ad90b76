"""The calls of operators that the rules adjust: conditions, replaced arguments, and results.

A function that only replaces arguments returns NotImplemented.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DeviceMesh
from torch.utils import _pytree as pytree

from ... import sbp
from ..global_dtensor import GlobalDTensor, map_tensors, redistribute, replicate
from ..mesh import group_of_mesh, same_random_values, summed
from ..shards import local_as_dtensor
from . import families
from .dtensor_results import by_dtensor
from .full_tensors import on_full_tensors
from .layouts import has_empty_shard, has_even_shards, is_sharded, partial_dims
from .operator_facts import (
    ADDITIONS,
    DIM_POSITIONS,
    LINEAR_IN_PLACE,
    NORMALIZATIONS,
    SELECTIONS,
    TAKES_EMPTY_SHARDS,
    writes_elsewhere,
)

aten = torch.ops.aten


@dataclasses.dataclass
class OperatorCall:
    """One call of an operator. Rules may replace the arguments. `mesh` is that of all arguments."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    mesh: DeviceMesh = None  # type: ignore[assignment]  # set before the rules of one mesh are tried
    empty_result: Any = None  # the result on tensors without elements, computed for its errors and dtype

    def on_full_tensors(self) -> Any:
        """Return the result that every rank computes on the full tensors."""
        return on_full_tensors(self.func, self.args, self.kwargs, self.mesh)


def is_list_on_several_meshes(call: OperatorCall) -> bool:
    """Whether the tensors of a list are on several meshes."""
    func, args = call.func, call.args
    return (
        bool(args)
        and isinstance(args[0], (list, tuple))
        and func._opname.startswith(("_foreach_", "_fused_"))
        and len({t.device_mesh for t in args[0]}) > 1
    )


def move_source(call: OperatorCall) -> Any:
    """Move the source of copy_ to the placement and the sbp of its target."""
    target, source = call.args[:2]
    if source.shape != target.shape:
        source = source.expand(target.shape)
    call.args = (target, redistribute(source, target._of_placement, target._of_sbp), *call.args[2:])
    return NotImplemented


def has_global_out_only(call: OperatorCall) -> bool:
    """Whether `out` is the only global tensor."""
    return "out" in call.kwargs and not any(
        isinstance(t, GlobalDTensor) for t in pytree.tree_leaves(call.args)
    )


def fill_out(call: OperatorCall) -> Any:
    """Compute the full result on every rank and write the shards of `out`."""
    sampled = torch.Tag.nondeterministic_seeded in call.func.tags
    with same_random_values() if sampled else contextlib.nullcontext():
        return call.on_full_tensors()


def replicate_ordinary_tensors(call: OperatorCall) -> Any:
    """Make ordinary tensors replicated global tensors."""
    call.args, call.kwargs = pytree.tree_map_only(
        torch.Tensor,
        lambda t: t if isinstance(t, GlobalDTensor) else replicate(t, call.mesh),
        (call.args, call.kwargs),
    )
    return NotImplemented


def replicate_mask(call: OperatorCall) -> Any:
    """Make the mask a replicated global tensor."""
    call.args = (call.args[0], replicate(call.args[1], call.mesh), *call.args[2:])
    return NotImplemented


def view_rows(call: OperatorCall) -> Any:
    """Make even shards contiguous. Return the view of uneven shards."""
    if not has_even_shards(call.args[0]):
        return families.viewed(call.func, *call.args)
    call.args = (families.in_rows(call.args[0]), *call.args[1:])
    return NotImplemented


def name_all_dims(call: OperatorCall) -> Any:
    """Name all dimensions."""
    call.args = (call.args[0], list(range(call.args[0].ndim)), *call.args[2:])
    return NotImplemented


def dtype_of_weights(call: OperatorCall) -> Any:
    """Return the dtype of a normalization's weights and statistics that differs from the data's, or None."""
    func, args = call.func, call.args
    return next(
        (
            t.dtype
            for t in args[NORMALIZATIONS[func] :]
            if isinstance(t, GlobalDTensor) and t.dtype != args[0].dtype
        ),
        None,
    )


def normalize_in_dtype_of_weights(call: OperatorCall) -> Any:
    """Normalize in the dtype of the weights, and give the result in the dtype of the data."""
    func, args, dtype = call.func, call.args, dtype_of_weights(call)
    data, *statistics = func(
        *(t.to(dtype) for t in args[: NORMALIZATIONS[func]]), *args[NORMALIZATIONS[func] :]
    )
    return data if data is None else data.to(args[0].dtype), *statistics


def convolve(call: OperatorCall) -> Any:
    """Shard the data by samples. Return the result if DTensor cannot compute it then."""
    func, count = call.func, families.CONVOLUTIONS[call.func]
    call.args = tuple(
        families.samples(a, i < count) if isinstance(a, GlobalDTensor) else a for i, a in enumerate(call.args)
    )
    data = call.args[count - 1]
    if data._of_sbp.count(sbp.split(0)) > 1 or group_of_mesh[call.mesh] is not dist.group.WORLD:
        return families.convolution(func, call.args)
    return NotImplemented


def count_dim_from_start(call: OperatorCall) -> Any:
    """Replace a negative dimension."""
    args, position = call.args, DIM_POSITIONS[call.func]
    ndim = args[0].ndim if position == 1 else len(args[1])
    call.args = (*args[:position], args[position] + ndim, *args[position + 1 :])
    return NotImplemented


def loses_writes(call: OperatorCall) -> bool:
    """Whether the function writes other elements than it reads, and an argument is a shard."""
    return writes_elsewhere(call.func) and any(map(is_sharded, pytree.tree_leaves((call.args, call.kwargs))))


def adds_to_partial(call: OperatorCall) -> bool:
    """Whether a partial operand meets one that is not partial along the same mesh dimensions."""
    return call.func in ADDITIONS and len({partial_dims(a) for a in call.args[:2]}) > 1


def add_to_partial(call: OperatorCall) -> Any:
    """Sum the partial operand first. In place, add out of place and copy the sum."""
    func, args = call.func, call.args
    if func._schema.is_mutable:  # autograd adds in place on some ranks, and not on others
        out_of_place = getattr(getattr(aten, func._opname[:-1]), func._overloadname)
        return args[0].copy_(out_of_place(*args, **call.kwargs))
    call.args = map_tensors(_summed_tensor, args)
    return NotImplemented


def meets_empty_shard(call: OperatorCall) -> bool:
    """Whether a rank without elements would run a kernel that may refuse them."""
    return (
        torch.Tag.pointwise not in call.func.tags
        and call.func.overloadpacket not in TAKES_EMPTY_SHARDS
        and any(map(has_empty_shard, pytree.tree_leaves(call.args)))
    )


def writes_partial(call: OperatorCall) -> bool:
    """Whether a function that is not linear writes a partial tensor."""
    return (
        call.func._schema.is_mutable
        and call.func not in LINEAR_IN_PLACE
        and any(
            p.is_partial()
            for t in (call.args[0], call.kwargs.get("out"))
            for p in getattr(t, "placements", ())
        )
    )


def cut_table_once(call: OperatorCall) -> Any:
    """Shard an embedding's table by rows along one mesh dimension, and replicate partial ids."""
    table, ids = families.cut_once(call.args[0], 0), call.args[1]
    columns = sbp.split(1) in table._of_sbp  # the mask of missing rows belongs to the shard of ids
    nd_sbp = (sbp.broadcast,) * call.mesh.ndim if columns else summed(ids._of_sbp)
    call.args = (table, redistribute(ids, ids._of_placement, nd_sbp), *call.args[2:])
    return NotImplemented


def selects_by_shards_from_partial(call: OperatorCall) -> bool:
    """Whether sharded indices select from a partial tensor."""
    return (
        call.func in SELECTIONS
        and any(p.is_partial() for p in getattr(call.args[0], "placements", ()))
        and any(map(is_sharded, pytree.tree_leaves(call.args[1:])))
    )


def sum_source(call: OperatorCall) -> Any:
    """Sum the first argument over the ranks."""
    call.args = (_summed_tensor(call.args[0]), *call.args[1:])
    return NotImplemented


def sum_divisor(call: OperatorCall) -> Any:
    """Sum the second argument over the ranks."""
    call.args = (call.args[0], _summed_tensor(call.args[1]))
    return NotImplemented


def gather_along_full_dim(call: OperatorCall) -> Any:
    """Replicate the source of gather along its `dim`, and sum it if it is partial."""
    source, dim = call.args[:2]
    along = sbp.split(dim % max(source.ndim, 1))
    nd_sbp = tuple(sbp.broadcast if r._kind == "partial_sum" or r == along else r for r in source._of_sbp)
    call.args = (redistribute(source, source._of_placement, nd_sbp), *call.args[1:])
    return NotImplemented


def sum_arguments(call: OperatorCall) -> Any:
    """Sum all partial arguments over the ranks."""
    call.args, call.kwargs = map_tensors(_summed_tensor, (call.args, call.kwargs))
    return NotImplemented


def _summed_tensor(tensor: GlobalDTensor) -> GlobalDTensor:
    return redistribute(tensor, tensor._of_placement, summed(tensor._of_sbp))


def run_dtensor(call: OperatorCall) -> Any:
    """Return DTensor's result, with the dtype that ranks with data get."""
    func, mesh = call.func, call.mesh
    out = by_dtensor(func, call.args, call.kwargs, mesh)
    dtype = getattr(call.empty_result, "dtype", None)
    if dtype is None or getattr(out, "dtype", None) in (None, dtype):
        return out
    # On a rank without data, DTensor of torch 2.11 has kept the dtype of 1 - x for 1.0 - x.
    return GlobalDTensor(
        local_as_dtensor(out._local_tensor.to(dtype), mesh, out.placements, out.shape, out.stride())
    )
