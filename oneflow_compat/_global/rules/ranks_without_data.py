"""What a rank does with tensors it holds no part of: it finds the rules that the ranks with parts find, for
all make the same calls later.
"""

from __future__ import annotations

import contextlib
import functools

import torch
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree


@functools.lru_cache(maxsize=None)
def same_rules():
    """DTensor searches for rules by costs and by sizes of parts, and has neither where a rank holds no part:
    here it searches as if this rank were the first of the mesh.
    """
    propagator = DTensor._op_dispatcher.sharding_propagator
    search = propagator.propagate_op_sharding_non_cached

    @functools.wraps(search)
    def found(schema):
        with contextlib.ExitStack() as stack:
            given = pytree.tree_leaves((schema.args_schema, schema.kwargs_schema))
            for mesh in {
                spec.mesh for spec in given if hasattr(spec, "mesh") and spec.mesh.get_coordinate() is None
            }:
                stack.enter_context(_as_first(mesh))
            return search(schema)

    propagator.propagate_op_sharding_non_cached = found
    propagator.propagate_op_sharding = type(propagator.propagate_op_sharding)(found)


@contextlib.contextmanager
def _as_first(mesh):
    mesh._coordinate_on_dim = (0,) * mesh.ndim
    try:
        yield
    finally:
        mesh._coordinate_on_dim = None


def results(func, *args, **kwargs):
    """Empty parts under the rules that DTensor has found; None where the operator gives None, which DTensor
    refuses on such a rank.
    """
    dispatcher = DTensor._op_dispatcher
    info = dispatcher.unwrap_to_op_info(func, args, kwargs)
    dispatcher.sharding_propagator.propagate(info)
    found = info.output_sharding.output_spec
    return pytree.tree_map(
        lambda s: (
            s
            if s is None
            else DTensor(torch.empty((0,) * len(s.shape), dtype=s.tensor_meta.dtype), s, requires_grad=False)
        ),
        found,
    )
