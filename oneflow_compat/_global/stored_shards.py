"""ZeRO stage 3: parameters that each rank stores as a shard, and that operators gather when they need them.

`store_shards` shards the parameters of modules in place: each keeps its identity, and its sbp becomes split.
From then on an operator that computes with such a parameter gathers it below autograd. Autograd saves the
shard, so backward() gathers it again. A hook sums each gradient into this rank's shard as soon as it is
complete.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (SC 2020),
stage 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import sbp
from . import zero
from .collectives import checking
from .global_dtensor import Gathering, GlobalDTensor, map_tensors, moved, redistribute
from .marks import OfSeveralRanks
from .rules.adjustments import OperatorCall
from .rules.operator_facts import READS

aten = torch.ops.aten
# The shard of the result is this function of the shard.
_VIEWS = {
    aten.t.default,
    aten.transpose.int,
    aten.permute.default,
    aten.detach.default,
    aten.alias.default,
}
_CAST = aten._to_copy.default
_SHARDWISE = ("_foreach_", "_fused_", "new_")  # operators of optimizers and creation functions


# --------------------------------------------------------------------------- storing
def store_shards(
    modules: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer], least: int
) -> None:
    """Store the replicated parameters of modules, and their optimizer state, as shards of the ranks.

    `least`: the elements that a shard has at least. The ranks agree first, and exchange no values.
    """
    optimizers = list(optimizers)
    replicated = _parameters_to_shard(modules, optimizers, least)
    if replicated:
        with checking("enable_zero(stage=3)", sends=True) as request:
            forms = [(tuple(p.shape), p._of_sbp, p._of_placement) for p in replicated]
            request.must_match(shard_min_size=least, parameters=forms)
    for parameter in replicated:
        _store(parameter, least)
    for optimizer in optimizers:
        for stepped_parameter, state in optimizer.state.items():
            state.update({key: stored_like(value, stepped_parameter) for key, value in state.items()})


def _parameters_to_shard(
    modules: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer], least: int
) -> list[GlobalDTensor]:
    """Return the replicated parameters that are large enough for shards, each once."""
    of_modules = [p for module in modules for p in module.parameters()]
    stepped = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    replicated = {
        id(p): p
        for p in (*of_modules, *stepped)
        if isinstance(p, GlobalDTensor) and p._gathering is None and sbp_of_shards(p, least) is not None
    }
    return list(replicated.values())


def _store(parameter: GlobalDTensor, least: int) -> None:
    nd_sbp = sbp_of_shards(parameter, least)
    assert nd_sbp is not None, "the parameter cannot be sharded"
    with torch.no_grad():
        parameter._dtensor = redistribute(parameter, parameter._of_placement, nd_sbp)._dtensor
    parameter._gathering = Gathering()
    if parameter.requires_grad:
        parameter.register_hook(  # type: ignore[no-untyped-call]
            lambda grad: _shard_of_gradient(grad, nd_sbp)
        )


def sbp_of_shards(parameter: GlobalDTensor, least: int) -> tuple[sbp.sbp, ...] | None:
    """Return the sbp of a parameter that is stored as shards, or None if it stays as it is.

    A parameter that is replicated along the first dimension of its placement is split along dimension 0, or
    along the first dimension that the ranks divide evenly.
    """
    first, *others = parameter._of_sbp
    ranks = parameter._of_placement.hierarchy[0]
    if first._kind != "broadcast" or ranks == 1 or parameter.numel() // ranks < max(least, 1):
        return None
    taken = {r._dim for r in others if r._kind == "split"}
    dims = [d for d in range(parameter.dim()) if d not in taken and parameter.shape[d] >= ranks]
    if not dims or any(r._kind == "partial_sum" for r in others):
        return None
    even = [d for d in dims if parameter.shape[d] % ranks == 0]
    return (sbp.split((even or dims)[0]), *others)


def stored_like(value: Any, parameter: Any) -> Any:
    """Return a value of an optimizer's state with the shards of its parameter, if they are stored."""
    if (
        isinstance(value, OfSeveralRanks)
        and isinstance(parameter, GlobalDTensor)
        and parameter._gathering is not None
        and value.shape == parameter.shape
        and value._of_sbp != parameter._of_sbp
    ):
        return value.to_global(placement=parameter._of_placement, sbp=parameter._of_sbp)
    return value


def _shard_of_gradient(grad: Any, nd_sbp: tuple[sbp.sbp, ...]) -> Any:
    return moved(grad, grad._of_placement, nd_sbp) if isinstance(grad, GlobalDTensor) else grad


# --------------------------------------------------------------------------- gathering
def is_stored(tensor: Any) -> bool:
    return isinstance(tensor, GlobalDTensor) and tensor._gathering is not None


def has_stored_shard(call: OperatorCall) -> bool:
    """Whether an argument of an operator is a stored shard."""
    return any(map(is_stored, pytree.tree_leaves((call.args, call.kwargs))))


def compute(call: OperatorCall) -> Any:
    """Gather the stored shards among the arguments of an operator, unless it computes on the shards.

    Return the result of a view or a cast, which is a stored shard as well. Else return NotImplemented.
    """
    func = call.func
    if zero.is_splitting() or func._schema.is_mutable or func in READS or func in zero.LIKE:
        return NotImplemented
    if func._opname.startswith(_SHARDWISE):
        return NotImplemented
    if func in _VIEWS:
        return _view(func, call.args, call.kwargs)
    if (func is _CAST or torch.Tag.pointwise in func.tags) and _are_alike(call):
        return _on_shards(call)
    call.args, call.kwargs = map_tensors(
        lambda t: t if t._gathering is None else gathered(t), (call.args, call.kwargs)
    )
    return NotImplemented


def gathered(tensor: GlobalDTensor) -> GlobalDTensor:
    """Return the tensor that operators compute with."""
    gathering = tensor._gathering
    assert gathering is not None, "the tensor is no stored shard"
    base = tensor if gathering.base is None else gathering.base
    full = redistribute(base, base._of_placement, (sbp.broadcast, *base._of_sbp[1:]))
    for view in gathering.views:
        full = view(full)  # type: ignore[assignment]  # a view of a global tensor is one
    return full


def _view(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GlobalDTensor:
    tensor: GlobalDTensor = args[0]
    gathering = tensor._gathering
    assert gathering is not None, "the tensor is no stored shard"
    out: GlobalDTensor = func(_as_plain(tensor), *args[1:], **kwargs)
    view = lambda full: func(full, *args[1:], **kwargs)
    base = tensor if gathering.base is None else gathering.base
    out._gathering = Gathering(base, (*gathering.views, view))
    return out


def _are_alike(call: OperatorCall) -> bool:
    """Whether all tensors of an operator are equal shards, so that the shard of the result is theirs."""
    tensors = [t for t in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(t, torch.Tensor)]
    shards = [t for t in tensors if isinstance(t, GlobalDTensor)]
    forms = {(t.device_mesh, t.placements, t.shape) for t in shards}
    return len(shards) == len(tensors) and len(forms) == 1


def _on_shards(call: OperatorCall) -> Any:
    """Return the result of the shards. It is a stored shard if all arguments are."""
    tensors = [t for t in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(t, GlobalDTensor)]
    args, kwargs = map_tensors(_as_plain, (call.args, call.kwargs))
    out = call.func(*args, **kwargs)
    if isinstance(out, GlobalDTensor) and all(t._gathering is not None for t in tensors):
        out._gathering = Gathering()
    return out


def _as_plain(tensor: GlobalDTensor) -> GlobalDTensor:
    """Return the same shard as a tensor that operators do not gather."""
    return GlobalDTensor(tensor._dtensor)
