"""DTensor's results as global tensors, and the full tensors where DTensor has no result."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DeviceMesh, DTensor, Shard
from torch.utils import _pytree as pytree

from .. import failures
from ..global_dtensor import GlobalDTensor, map_tensors
from ..mesh import first_rank, group_of_mesh, is_member, same_random_values
from ..process_group import CollectiveError
from . import ranks_without_data
from .full_tensors import on_full_tensors
from .layouts import has_even_shards, is_mean_of_shards, partial_dims, with_supported_placements
from .operator_facts import EXTREMA, VALUE_ERRORS


def divides_integers(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether DTensor would divide integers.

    Next to a partial operand, DTensor makes a replicated one partial by division, which gives floating-point
    values.
    """
    tensors = [t for t in pytree.tree_leaves(args) if isinstance(t, GlobalDTensor)]
    return (
        not func._schema.is_mutable
        and not all(t.dtype.is_floating_point for t in tensors)
        and len(set(map(partial_dims, tensors))) > 1
    )


def by_dtensor(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mesh: DeviceMesh) -> Any:
    """Return DTensor's result as a global tensor, or the result on the full tensors if DTensor has none."""
    holders: dict[Any, Any] = {}  # id of a DTensor -> the global tensor that wraps it

    def unwrap(tensor: GlobalDTensor) -> DTensor:
        holders[id(tensor._dtensor)] = tensor
        return tensor._dtensor

    plain = map_tensors(unwrap, (args, kwargs))
    try:
        with _random_values(func, mesh, args), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="DTensor random operators")
            out = _callable_on(mesh, func)(*plain[0], **plain[1])
            if is_mean_of_shards(out) and not _have_even_shards(args):
                out = on_full_tensors(func, args, kwargs, mesh)
    # AssertionError: DTensor of torch 2.15 has rules that contradict each other on a mesh of two dimensions
    except (NotImplementedError, RuntimeError, AssertionError) as error:
        if isinstance(error, CollectiveError) or failures.is_lost(error):
            raise
        if "mixed torch.Tensor and DTensor" in str(error):
            raise RuntimeError(
                f"{func}: some tensors are global and some are local; make them all the same first"
                " (to_global, to_local)"
            ) from None
        if _is_about_values(error):
            raise  # the other ranks may not get this error; they would wait in another call
        out = on_full_tensors(func, args, kwargs, mesh)
    return pytree.tree_map_only(
        DTensor, lambda t: holders[id(t)] if id(t) in holders else with_supported_placements(t), out
    )


def _callable_on(mesh: DeviceMesh, func: Any) -> Callable[..., Any]:
    """Return `func`, or its replacement on a rank without data, where DTensor refuses the operator."""
    refuses = func in EXTREMA or any(a.name == "output_mask" for a in func._schema.arguments)
    return functools.partial(ranks_without_data.results, func) if refuses and not is_member(mesh) else func


def _have_even_shards(args: tuple[Any, ...]) -> bool:
    """Whether each global tensor of the arguments has shards of one size."""
    return all(has_even_shards(t) for t in pytree.tree_leaves(args) if isinstance(t, GlobalDTensor))


def _is_about_values(error: Exception) -> bool:
    """Whether the error may be about values, and so not reach each rank."""
    message = str(error)
    return "Sharding propagation failed" not in message and any(part in message for part in VALUE_ERRORS)


@functools.cache
def has_dtensor_strategy(func: Any) -> bool:
    """Whether DTensor has a strategy for this function.

    A strategy that it derives from a decomposition depends, for partial tensors, on each rank's hash seed.
    """
    propagator = DTensor._op_dispatcher.sharding_propagator
    return any(
        func in getattr(propagator, table, ())
        for table in ("op_to_rules", "op_strategy_funcs", "op_single_dim_strategy_funcs")
    )


def has_long_search(args: tuple[Any, ...]) -> bool:
    """Whether DTensor would try too many placements.

    It tries all combinations through a decomposition, which takes many seconds for index_add.
    """
    shapes = [t.shape for t in pytree.tree_leaves(args) if isinstance(t, GlobalDTensor) and t.ndim]
    return len(shapes) > 2 and len(set(shapes)) > 1


def _random_values(
    func: Any, mesh: DeviceMesh, args: tuple[Any, ...]
) -> contextlib.AbstractContextManager[Any]:
    """Let ranks that hold the same shard sample the same values, and others their own.

    On a GPU, DTensor does so.
    """
    if torch.Tag.nondeterministic_seeded not in func.tags or mesh.device_type != "cpu" or not is_member(mesh):
        return contextlib.nullcontext()
    sample, offset = next(t for t in pytree.tree_leaves(args) if isinstance(t, GlobalDTensor)), 0
    for target, size, coordinate in zip(sample.placements, mesh.shape, mesh.get_coordinate() or ()):
        offset = offset * size + (coordinate if isinstance(target, Shard) else 0)
    return same_random_values(group_of_mesh[mesh], first_rank(mesh), offset)
