"""Operators computed from each rank's shard and from sums over the ranks.

DTensor has no strategy for them or gives another value. Full tensors are not sent between ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.tensor import DeviceMesh

from ... import sbp
from ..global_dtensor import GlobalDTensor, from_shard, map_tensors, redistribute, replicate
from ..mesh import is_member, summed
from ..reading import full_tensor

aten = torch.ops.aten
_MEAN, _SUM = 1, 2
# gradient of a mean -> position of its `reduction`; DTensor divides by the size of a shard
_MEANS = {aten.binary_cross_entropy_backward.default: 4} | dict.fromkeys(
    [
        getattr(aten, n).default
        for n in (
            "mse_loss_backward",
            "smooth_l1_loss_backward",
            "huber_loss_backward",
            "soft_margin_loss_backward",
        )
    ],
    3,
)
# Functions that compute each sample by itself.
_ROWS = {
    aten.hardtanh_backward.default,
    aten.hardswish_backward.default,
    aten._prelu_kernel_backward.default,
    aten.avg_pool2d_backward.default,
}
# function -> the roles of its leading arguments and of its results: d is data (steps, samples), s is a state
# (samples), k is the same on all ranks, w is a gradient of weights
LSTM = {
    aten.mkldnn_rnn_layer.default: ("dkkkkss", "dssk"),
    aten.mkldnn_rnn_layer_backward.default: ("dkkkkssdssdss", "dwwwwss"),
}
# function -> dimensions of its data; with one dimension less there are no samples
_IMAGES = {
    aten.im2col.default: 4,
    aten.col2im.default: 3,
}


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of such an operator.

    Return NotImplemented for other operators, and for tensors with other placements.
    """
    at = _MEANS.get(func)
    if at is not None and (len(args) <= at or args[at] == _MEAN):  # omitted arguments mean None and the mean
        return func(
            args[0] / args[1].numel(),
            *args[1:at],
            *(None,) * (at - len(args)),
            _SUM,
            *args[at + 1 :],
            **kwargs,
        )
    if func is aten.native_batch_norm.default and shard_at(args[0], 2):
        return _batch_norm(*args)
    if func is aten.native_batch_norm_backward.default and shard_at(args[1], 2):
        return _batch_norm_backward(*args)
    if func is aten.native_group_norm_backward.default and shard_at(args[1], 1):
        return _group_norm_backward(func, *args)
    if func in _ROWS or func in _IMAGES and args[0].ndim == _IMAGES[func]:
        split = next((t for t in args if shard_at(t, 1)), None)
        if split is not None:
            return _rows(func, split, args, kwargs)
    return NotImplemented


def unscale(func: Any, grads: Sequence[Any], found_inf: Any, scale: Any) -> None:
    """Divide gradients of all placements by the loss scale.

    Each rank divides its shards. If one rank meets a value that is not finite, all ranks get the flag.
    """
    func([g._local_tensor if isinstance(g, GlobalDTensor) else g for g in grads], found_inf, scale)
    world: Any = dist.group.WORLD
    found_inf.copy_(funcol.wait_tensor(funcol.all_reduce(found_inf, "max", world)))


def shard_at(tensor: Any, dims: int) -> bool:
    """Whether a tensor is sharded, and only along its first `dims` dimensions."""
    return (
        isinstance(tensor, GlobalDTensor)
        and tensor.dtype in (torch.float32, torch.float64)
        and any(r._kind == "split" for r in tensor._of_sbp)
        and all(r._kind == "broadcast" or r._kind == "split" and r._dim < dims for r in tensor._of_sbp)
    )


def _sum(tensor: Any, dims: Sequence[int]) -> Any:
    out = tensor.sum(dims)
    return redistribute(out, out._of_placement, summed(out._of_sbp))


def _channels(x: Any) -> tuple[list[int], int, Callable[..., Any]]:
    """Return the dimensions except channels, the count of values in a channel, and a function.

    The function reshapes one value for each channel so that it broadcasts over the other dimensions.
    """
    dims = [d for d in range(x.ndim) if d != 1]
    return dims, x.numel() // x.shape[1], lambda t: t.view(-1, *[1] * (x.ndim - 2))


def _batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    dims, count, beside = _channels(x)
    if training:
        mean = _sum(x, dims) / count
        var = _sum((x - beside(mean)).square(), dims) / count
        for running, value in ((running_mean, mean), (running_var, var * (count / max(count - 1, 1)))):
            if running is not None:
                running.mul_(1 - momentum).add_(
                    redistribute(value, running._of_placement, running._of_sbp) * momentum
                )
        kept: tuple[Any, Any] = mean, torch.rsqrt(var + eps)
    else:
        mean, var = running_mean, running_var
        kept = (replicate(torch.empty(0, dtype=mean.dtype), x.device_mesh),) * 2
    scale = torch.rsqrt(var + eps) * (1 if weight is None else weight)
    out = (x - beside(mean)) * beside(scale)
    return (out if bias is None else out + beside(bias)), *kept


def _batch_norm_backward(
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    mean: Any,
    invstd: Any,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    dims, count, beside = _channels(x)
    if not training:
        mean, invstd = running_mean, torch.rsqrt(running_var + eps)
    normal = (x - beside(mean)) * beside(invstd)
    shift, scale = _sum(grad, dims), _sum(grad * normal, dims)
    if training:
        grad = grad - beside(shift / count) - normal * beside(scale / count)
    out = grad * beside(invstd if weight is None else invstd * weight) if mask[0] else None
    return out, scale if mask[1] else None, shift if mask[2] else None


def _group_norm_backward(
    func: Any,
    grad: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    n: int,
    channels: int,
    size: int,
    groups: int,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    placement, nd_sbp = x._of_placement, x._of_sbp
    part = [redistribute(t, placement, nd_sbp)._local_tensor for t in (grad, x, mean, rstd)]
    whole = (
        weight
        if weight is None
        else redistribute(weight, placement, (sbp.broadcast,) * len(nd_sbp))._local_tensor
    )
    if not is_member(x.device_mesh):
        local = [torch.empty(0, dtype=x.dtype) for _ in mask]
    else:
        local = func(*part, whole, part[1].shape[0], channels, size, groups, mask)
    summed = [sbp.partial_sum if r._kind == "split" else r for r in nd_sbp]
    return tuple(
        from_shard(o, placement, r, s) if asked else None
        for o, r, s, asked in zip(local, (nd_sbp, summed, summed), (x.shape, (channels,), (channels,)), mask)
    )


def lstm(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Compute oneDNN's LSTM on each rank's samples.

    Only its kernel knows the size of the memory it keeps for backward(). Therefore that memory stays on its
    rank.
    """
    x, (argument_roles, result_roles) = args[0], LSTM[func]
    placement, mine, even = x._of_placement, is_member(x.device_mesh), x.shape[1] % x.device_mesh.size() == 0
    sbp_of = {
        role: tuple(by_channel if even and r == sbp.split(1) else sbp.broadcast for r in x._of_sbp)
        for role, by_channel in zip("dskw", (sbp.split(1), sbp.split(0), sbp.broadcast, sbp.partial_sum))
    }
    local = [
        redistribute(a, placement, sbp_of[role])._local_tensor if isinstance(a, GlobalDTensor) else a
        for a, role in zip_longest(args, argument_roles, fillvalue="k")
    ]
    shapes = func(*map_tensors(shape, args))
    out = func(*local) if mine else [torch.empty((0,) * o.ndim, dtype=o.dtype) for o in shapes]
    return tuple(
        from_shard(o, placement, sbp_of[role], o.shape if role == "k" else s.shape)
        for o, s, role in zip(out, shapes, result_roles)
    )


def shape(tensor: Any) -> torch.Tensor:
    """Return a tensor without values in the shape of the full tensor."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _rows(func: Any, like: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    placement, nd_sbp, n = like._of_placement, like._of_sbp, like.shape[0]

    def part(tensor: Any) -> torch.Tensor:
        return redistribute(
            tensor,
            placement,
            nd_sbp if tensor.ndim and tensor.shape[0] == n else (sbp.broadcast,) * len(nd_sbp),
        )._local_tensor

    def around(out: Any) -> Any:
        return from_shard(
            out if mine else torch.empty(0, dtype=out.dtype), placement, nd_sbp, (n, *out.shape[1:])
        )

    mine = is_member(like.device_mesh)
    args, kwargs = map_tensors(part if mine else shape, (args, kwargs))
    out = func(*args, **kwargs)
    return tuple(map(around, out)) if isinstance(out, tuple) else around(out)


# ------ Optimizer updates of global tensors: one call for each placement, and each rank on its own shards


def by_placement(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator over lists, as optimizers use them: one call for the tensors of each placement."""
    count = len(args[0])
    by_mesh: dict[DeviceMesh, list[int]] = {}
    for i, t in enumerate(args[0]):
        by_mesh.setdefault(t.device_mesh, []).append(i)
    results: list[Any] = [None] * count
    for indices in by_mesh.values():
        pick = functools.partial(_select, indices, count)
        out = func(*map(pick, args), **{k: pick(v) for k, v in kwargs.items()})
        for i, o in zip(indices, out or ()):
            results[i] = o
    return results if any(r is not None for r in results) else None


def _select(indices: list[int], count: int, argument: Any) -> Any:
    """Return the entries of an argument that is a list with an entry for each tensor."""
    is_list = isinstance(argument, (list, tuple)) and len(argument) == count
    return [argument[i] for i in indices] if is_list else argument


def states_follow_parameters(parameters: Sequence[Any], _: Any, *states: Any) -> bool:
    """Whether every state of an optimizer has its parameter's placements.

    Then each rank can update its own shards.
    """
    per_parameter = [s for s in states if isinstance(s, (list, tuple))]
    return not any(p.is_partial() for t in parameters for p in t.placements) and all(
        not isinstance(s, GlobalDTensor) or s.placements == t.placements
        for state in per_parameter
        for t, s in zip(parameters, state)
    )


def update_shards(
    func: Any, parameters: Sequence[Any], grads: Sequence[Any], *states: Any, **scalars: Any
) -> Any:
    """Update each rank's shards of the parameters with their shards of the gradients."""
    part = lambda a: (
        [t._local_tensor if isinstance(t, GlobalDTensor) else t for t in a]
        if isinstance(a, (list, tuple))
        else a
    )
    grads = [redistribute(g, t._of_placement, t._of_sbp) for t, g in zip(parameters, grads)]
    return func(*map(part, (parameters, grads, *states)), **map_tensors(full_tensor, scalars))
