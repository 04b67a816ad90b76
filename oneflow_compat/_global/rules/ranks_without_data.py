"""Operators on a rank that has no data of a tensor.

The rank chooses the placements that the ranks with data choose, because all ranks make the same calls later.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree


@functools.cache
def same_rules() -> None:
    """Make DTensor choose the same placements on ranks without data.

    DTensor chooses by costs and by sizes of shards, and has neither on such a rank. With this patch it
    chooses as if the rank were the first of the mesh.
    """
    propagator: Any = DTensor._op_dispatcher.sharding_propagator
    search = propagator.propagate_op_sharding_non_cached

    @functools.wraps(search)
    def search_as_first(schema: Any) -> Any:
        with contextlib.ExitStack() as stack:
            specs = pytree.tree_leaves((schema.args_schema, schema.kwargs_schema))
            for mesh in {
                spec.mesh for spec in specs if hasattr(spec, "mesh") and spec.mesh.get_coordinate() is None
            }:
                stack.enter_context(_as_first(mesh))
            return search(schema)

    propagator.propagate_op_sharding_non_cached = search_as_first
    propagator.propagate_op_sharding = type(propagator.propagate_op_sharding)(search_as_first)


@contextlib.contextmanager
def _as_first(mesh: Any) -> Iterator[None]:
    mesh._coordinate_on_dim = (0,) * mesh.ndim
    try:
        yield
    finally:
        mesh._coordinate_on_dim = None


def results(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Return empty shards under the placements that DTensor chose.

    Return None where the operator gives None, which DTensor refuses on such a rank.
    """
    dispatcher: Any = DTensor._op_dispatcher
    info = dispatcher.unwrap_to_op_info(func, args, kwargs)
    dispatcher.sharding_propagator.propagate(info)
    specs = info.output_sharding.output_spec
    return pytree.tree_map(
        lambda s: (
            s
            if s is None
            else DTensor(torch.empty((0,) * len(s.shape), dtype=s.tensor_meta.dtype), s, requires_grad=False)
        ),
        specs,
    )
