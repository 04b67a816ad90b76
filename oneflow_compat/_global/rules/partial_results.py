"""Operators done with each rank's part and sums over the ranks, where DTensor has no rule or gives another
number: whole tensors do not travel.
"""

from __future__ import annotations

from itertools import zip_longest

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from ... import sbp
from ..dtensor import GlobalDTensor, _copies, _map, _mine, _moved, _summed, made

aten = torch.ops.aten
_MEAN, _SUM = 1, 2
# gradient of a mean -> where its `reduction` is; DTensor divides by the size of a part
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
# each sample by itself
_ROWS = {
    aten.hardtanh_backward.default,
    aten.hardswish_backward.default,
    aten._prelu_kernel_backward.default,
    aten.avg_pool2d_backward.default,
}
# function -> what its first arguments and its results are: data (steps, samples), states (samples), the same
# on all ranks, weights' gradients
LSTM = {
    aten.mkldnn_rnn_layer.default: ("dkkkkss", "dssk"),
    aten.mkldnn_rnn_layer_backward.default: ("dkkkkssdssdss", "dwwwwss"),
}
_IMAGES = {
    aten.im2col.default: 4,
    aten.col2im.default: 3,
}  # of so many dimensions: with one less there are no samples


def call(func, args, kwargs):
    """The result of such an operator; NotImplemented of another, or of tensors that are split otherwise."""
    at = _MEANS.get(func)
    if at is not None and (len(args) <= at or args[at] == _MEAN):  # what is left out is None and the mean
        return func(
            args[0] / args[1].numel(),
            *args[1:at],
            *(None,) * (at - len(args)),
            _SUM,
            *args[at + 1 :],
            **kwargs,
        )
    if func is aten.native_batch_norm.default and _cut(args[0], 2):
        return _batch_norm(*args)
    if func is aten.native_batch_norm_backward.default and _cut(args[1], 2):
        return _batch_norm_backward(*args)
    if func is aten.native_group_norm_backward.default and _cut(args[1], 1):
        return _group_norm_backward(func, *args)
    if func in _ROWS or func in _IMAGES and args[0].ndim == _IMAGES[func]:
        split = next((t for t in args if _cut(t, 1)), None)
        if split is not None:
            return _rows(func, split, args, kwargs)
    return NotImplemented


def unscale(func, grads, found, scale):
    """Gradients of all placements divided by the loss scale: each rank its parts, and what one finds all
    know.
    """
    func([g._local_tensor if isinstance(g, GlobalDTensor) else g for g in grads], found, scale)
    found.copy_(funcol.wait_tensor(funcol.all_reduce(found, "max", dist.group.WORLD)))


def _cut(tensor, dims) -> bool:
    """Is a tensor split along its first dimensions only?"""
    return (
        isinstance(tensor, GlobalDTensor)
        and tensor.dtype in (torch.float32, torch.float64)
        and any(r._kind == "split" for r in tensor._of_sbp)
        and all(r._kind == "broadcast" or r._kind == "split" and r._dim < dims for r in tensor._of_sbp)
    )


def _sum(tensor, dims):
    out = tensor.sum(dims)
    return _moved(out, out._of_placement, _summed(out._of_sbp))


def _channels(x):
    """The other dimensions, how many numbers a channel has, and what puts a channel's number beside them."""
    dims = [d for d in range(x.ndim) if d != 1]
    return dims, x.numel() // x.shape[1], lambda t: t.view(-1, *[1] * (x.ndim - 2))


def _batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps):
    dims, count, beside = _channels(x)
    if training:
        mean = _sum(x, dims) / count
        var = _sum((x - beside(mean)).square(), dims) / count
        for running, value in ((running_mean, mean), (running_var, var * (count / max(count - 1, 1)))):
            if running is not None:
                running.mul_(1 - momentum).add_(
                    _moved(value, running._of_placement, running._of_sbp) * momentum
                )
        kept = mean, torch.rsqrt(var + eps)
    else:
        mean, var = running_mean, running_var
        kept = (_copies(torch.empty(0, dtype=mean.dtype), x.device_mesh),) * 2
    scale = torch.rsqrt(var + eps) * (1 if weight is None else weight)
    out = (x - beside(mean)) * beside(scale)
    return (out if bias is None else out + beside(bias)), *kept


def _batch_norm_backward(grad, x, weight, running_mean, running_var, mean, invstd, training, eps, mask):
    dims, count, beside = _channels(x)
    if not training:
        mean, invstd = running_mean, torch.rsqrt(running_var + eps)
    normal = (x - beside(mean)) * beside(invstd)
    shift, scale = _sum(grad, dims), _sum(grad * normal, dims)
    if training:
        grad = grad - beside(shift / count) - normal * beside(scale / count)
    out = grad * beside(invstd if weight is None else invstd * weight) if mask[0] else None
    return out, scale if mask[1] else None, shift if mask[2] else None


def _group_norm_backward(func, grad, x, mean, rstd, weight, n, channels, size, groups, mask):
    place, rules = x._of_placement, x._of_sbp
    part = [_moved(t, place, rules)._local_tensor for t in (grad, x, mean, rstd)]
    whole = weight if weight is None else _moved(weight, place, (sbp.broadcast,) * len(rules))._local_tensor
    if not _mine(x.device_mesh):
        local = [torch.empty(0, dtype=x.dtype) for _ in mask]
    else:
        local = func(*part, whole, part[1].shape[0], channels, size, groups, mask)
    summed = [sbp.partial_sum if r._kind == "split" else r for r in rules]
    return tuple(
        made(o, place, r, s) if asked else None
        for o, r, s, asked in zip(local, (rules, summed, summed), (x.shape, (channels,), (channels,)), mask)
    )


def lstm(func, args):
    """oneDNN's LSTM on each rank's samples; only its kernel knows the size of what it keeps for backward,
    which therefore does not travel.
    """
    x, (given, results) = args[0], LSTM[func]
    place, mine, even = x._of_placement, _mine(x.device_mesh), x.shape[1] % x.device_mesh.size() == 0
    of_kind = {
        kind: tuple(rule if even and r == sbp.split(1) else sbp.broadcast for r in x._of_sbp)
        for kind, rule in zip("dskw", (sbp.split(1), sbp.split(0), sbp.broadcast, sbp.partial_sum))
    }
    local = [
        _moved(a, place, of_kind[kind])._local_tensor if isinstance(a, GlobalDTensor) else a
        for a, kind in zip_longest(args, given, fillvalue="k")
    ]
    shapes = func(*_map(shape, args))
    out = func(*local) if mine else [torch.empty((0,) * o.ndim, dtype=o.dtype) for o in shapes]
    return tuple(
        made(o, place, of_kind[kind], o.shape if kind == "k" else s.shape)
        for o, s, kind in zip(out, shapes, results)
    )


def shape(tensor):
    """A tensor without values, of the whole shape."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _rows(func, like, args, kwargs):
    place, rules, n = like._of_placement, like._of_sbp, like.shape[0]

    def part(tensor):
        return _moved(
            tensor, place, rules if tensor.ndim and tensor.shape[0] == n else (sbp.broadcast,) * len(rules)
        )._local_tensor

    def around(out):
        return made(out if mine else torch.empty(0, dtype=out.dtype), place, rules, (n, *out.shape[1:]))

    mine = _mine(like.device_mesh)
    args, kwargs = _map(part if mine else shape, (args, kwargs))
    out = func(*args, **kwargs)
    return tuple(map(around, out)) if isinstance(out, tuple) else around(out)
