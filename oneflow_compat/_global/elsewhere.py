"""What a rank does with tensors it holds no part of: it finds the rules that the ranks with parts find, for all make the same calls later."""
from __future__ import annotations

import functools

import torch
from torch.distributed.tensor import DeviceMesh, DTensor
from torch.utils import _pytree as pytree

from .. import env


@functools.lru_cache(maxsize=None)
def same_costs():
    """DTensor takes the rules that cost least, and has no costs where a rank holds no part: here those of a mesh with this rank in it."""
    from torch.distributed.tensor._ops import utils

    original = utils.redistribute_cost

    @functools.wraps(original)
    def cost(current, target):
        if current.mesh != target.mesh or current.mesh.get_coordinate() is not None:
            return original(current, target)
        inside = _with_this_rank(current.mesh)
        return original(*(type(s)(inside, s.placements, tensor_meta=s.tensor_meta) for s in (current, target)))

    utils.redistribute_cost = cost


@functools.lru_cache(maxsize=None)
def _with_this_rank(mesh) -> DeviceMesh:
    ranks = (torch.arange(mesh.mesh.numel()) + env.get_rank()) % env.get_world_size()
    return DeviceMesh(mesh.device_type, ranks.view(mesh.mesh.shape), _init_backend=False)


def results(func, *args, **kwargs):
    """Empty parts under the rules that DTensor has found; None where the operator gives None, which DTensor refuses on such a rank."""
    dispatcher = DTensor._op_dispatcher
    info = dispatcher.unwrap_to_op_info(func, args, kwargs)
    dispatcher.sharding_propagator.propagate(info)
    found = info.output_sharding.output_spec
    return pytree.tree_map(lambda s: s if s is None else DTensor(torch.empty((0,) * len(s.shape), dtype=s.tensor_meta.dtype), s, requires_grad=False), found)
