"""Global tensors of several ranks in families of operators: attention, convolutions, losses of classes, and
other shapes of the same numbers.
"""

from __future__ import annotations

import math

import torch
from torch.utils._mode_utils import no_dispatch

from ... import sbp
from . import partial_results
from ..dtensor import GlobalDTensor, _map, _mine, _moved, made
from ..tensor import is_symbolic

aten = torch.ops.aten
# function -> how many of its first arguments are data; DTensor takes channels and pixels on several ranks for
# samples
CONVOLUTIONS = {aten.convolution.default: 1, aten.convolution_backward.default: 2}
# function -> where the query is; DTensor would look for rules in its decomposition, for many seconds
ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: 0,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: 1,
}
# function -> where its `reduction` is; DTensor takes the mean of the parts' means, also where they ignore or
# weigh other targets
NLL = {
    aten.nll_loss_forward.default: 3,
    aten.nll_loss2d_forward.default: 3,
    aten.nll_loss_backward.default: 4,
    aten.nll_loss2d_backward.default: 4,
}
MEAN, _SUM = 1, 2


def cut_once(tensor, dim):
    """The tensor, split along `dim` by one dimension of ranks at most: DTensor finds a part's rows by that
    one alone.
    """
    rules = tensor._of_sbp
    if rules.count(sbp.split(dim)) < 2:
        return tensor
    first = rules.index(sbp.split(dim))
    return _moved(
        tensor,
        tensor._of_placement,
        tuple(sbp.broadcast if r == sbp.split(dim) and i > first else r for i, r in enumerate(rules)),
    )


def reshaped(func, tensor, *args):
    """A tensor that changes its shape in place: it holds the DTensor of the new shape."""
    tensor._held = getattr(aten, func._opname[:-1])(tensor, *args)._held
    with no_dispatch():
        func(tensor, *args)
    return tensor


def of_same_rows(tensor, dim, index) -> bool:
    """Does gather's index cover the tensor but for `dim`? DTensor takes the rows of each rank's part, else,
    for the first ones.
    """
    return all(
        a == b for i, (a, b) in enumerate(zip(tensor.shape, index.shape)) if i != dim % max(tensor.ndim, 1)
    )


def attention(func, args, kwargs):
    """Attention of each rank's samples and heads."""
    query = args[ATTENTION[func]]
    place, size = query._of_placement, query.shape
    alike = all(t.shape[:2] == size[:2] for t in args[ATTENTION[func] :][:3])
    rules = tuple(r if alike and r in (sbp.split(0), sbp.split(1)) else sbp.broadcast for r in query._of_sbp)

    def part(tensor):  # a mask may be the same for all samples or heads, or have two dimensions
        own = tuple(
            r
            if r._kind == "split" and tensor.ndim > 2 and tensor.shape[r._dim] == size[r._dim]
            else sbp.broadcast
            for r in rules
        )
        return _moved(tensor, place, own)._local_tensor

    if _mine(query.device_mesh):
        out = func(*_map(part, args), **_map(part, kwargs))
    else:
        out = [
            torch.empty((0,) * o.ndim, dtype=o.dtype)
            for o in func(*_map(partial_results.shape, args), **_map(partial_results.shape, kwargs))
        ]
    ends = (
        [t.shape[2:] for t in args[1:4]] if ATTENTION[func] else [(*size[2:-1], args[2].shape[-1]), size[2:3]]
    )
    return tuple(made(o, place, rules, (*size[:2], *end)) for o, end in zip(out, ends))


def masks_the_future(scores, mask) -> bool:
    """Is this the mask that torch's attention makes of is_causal=True where it has no kernel (dropout, one
    sample)? An ordinary tensor, the same on every rank.
    """
    if (
        not isinstance(scores, GlobalDTensor)
        or isinstance(mask, GlobalDTensor)
        or scores.ndim < 3
        or getattr(mask, "shape", None) != scores.shape[-2:]
        or mask.requires_grad
    ):
        return False
    return is_symbolic(mask) or torch.equal(mask, torch.full_like(mask, -math.inf).triu(1))


def strided(tensor, size, stride, offset=None):
    """as_strided of the whole: a view of every rank's memory, for its formula in backward() writes through
    it.
    """
    mesh, replicas = tensor.device_mesh, (sbp.broadcast,) * tensor.device_mesh.ndim
    local = _moved(tensor, tensor._of_placement, replicas)._local_tensor
    local = local.as_strided(size, stride, offset) if _mine(mesh) else local.new_empty((0,) * len(size))
    return made(local, tensor._of_placement, replicas, size)


def in_rows(tensor):
    """The tensor, contiguous as OneFlow's global tensors always are: each rank's part may have an order of
    its own, which allows no view.
    """
    local = tensor._local_tensor
    return (
        tensor
        if tensor.is_contiguous() and local.is_contiguous()
        else made(local.contiguous(), tensor._of_placement, tensor._of_sbp, tensor.shape)
    )


def viewed(func, tensor, size):
    """A view in another shape of uneven parts: what is split stays so where the dimensions before it, or
    those after it, are the same.
    """
    rest = math.prod(n for n in size if n >= 0)
    size = [tensor.numel() // max(rest, 1) if n < 0 else n for n in size]
    rules, local_size, shift = [], list(size), len(size) - tensor.ndim
    kept = list(tensor._of_sbp)
    for i, r in enumerate(kept):
        d = r._dim if r._kind == "split" else None
        if d is None or list(tensor.shape[: d + 1]) == size[: d + 1]:
            rules.append(r)
        elif d + shift >= 0 and list(tensor.shape[d:]) == size[d + shift :]:
            rules.append(sbp.split(d + shift))
        else:
            kept[i] = sbp.broadcast
            rules.append(sbp.broadcast)
    local = _moved(tensor, tensor._of_placement, tuple(kept))._local_tensor
    if not _mine(tensor.device_mesh):
        return made(local.new_empty((0,) * len(size)), tensor._of_placement, tuple(rules), size)
    for old, new in zip(kept, rules):
        if new._kind == "split":
            local_size[new._dim] = local.shape[old._dim]
    return made(local.reshape(local_size), tensor._of_placement, tuple(rules), size)


def kept_dims(func, tensor, dims):
    """A reduction with keepdim; DTensor names the dimensions that are left as if it were without."""
    out = func(tensor, dims)
    for d in sorted(d % tensor.ndim for d in dims):
        out = out.unsqueeze(d)
    return out


def samples(tensor, data):
    """An operand of a convolution: data may be split by samples, weights are whole."""
    rules = tuple(r if data and r == sbp.split(0) else sbp.broadcast for r in tensor._of_sbp)
    return _moved(tensor, tensor._of_placement, rules)


def convolution(func, args):
    """A convolution on each rank's samples: DTensor knows one dimension of ranks that splits them, and
    computes one also on ranks that hold no part.
    """
    backward = func is aten.convolution_backward.default
    data = args[1 if backward else 0]
    place, rules = data._of_placement, data._of_sbp
    if backward:
        args = (_moved(args[0], place, rules), *args[1:])
        sums = tuple(sbp.partial_sum if r == sbp.split(0) else sbp.broadcast for r in rules)
        results = [(rules, data.shape), (sums, args[2].shape), (sums, args[3])]
    else:
        results = [(rules, func(*_map(partial_results.shape, args)).shape)]
    local = _map(lambda t: t._local_tensor, args)
    if _mine(data.device_mesh):
        out = func(*local)
        own = list(out) if backward else [out]
    else:
        own = [local[0].new_empty((0,) * len(size)) for _, size in results]
    wanted = args[-1] if backward else [True]
    whole_of = tuple(
        made(part, place, *result) if want else None for part, result, want in zip(own, results, wanted)
    )
    return whole_of if backward else whole_of[0]


def mean_of_targets(func, *args):
    """nll_loss and its gradient as those of the sum, and the weight of all targets."""
    if NLL[func] == 4:
        grad, *rest, _, ignored, weight_of_all = args
        return func(grad / weight_of_all, *rest, _SUM, ignored, weight_of_all)
    x, target, weight, _, ignored = args
    total, _ = func(x, target, weight, _SUM, ignored)
    counted = target != ignored
    each = (
        counted.to(x.dtype)
        if weight is None
        else weight.index_select(0, (target * counted).reshape(-1)).reshape(target.shape) * counted
    )
    weight_of_all = each.sum()
    return total / weight_of_all, weight_of_all
