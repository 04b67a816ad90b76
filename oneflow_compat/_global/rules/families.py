"""Families of operators on global tensors of several ranks: attention, convolutions, losses, views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from ... import sbp
from ..global_dtensor import GlobalDTensor, from_shard, map_tensors, redistribute
from ..marks import is_symbolic
from ..mesh import is_member
from . import partial_results

aten = torch.ops.aten
# function -> how many leading arguments are data. DTensor takes shards of channels and pixels for samples.
CONVOLUTIONS = {aten.convolution.default: 1, aten.convolution_backward.default: 2}
# function -> position of the query. DTensor would search its decomposition for many seconds.
ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: 0,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: 1,
}
# function -> position of `reduction`. DTensor averages the shards' means, even if the shards ignore or weigh
# different targets.
NLL = {
    aten.nll_loss_forward.default: 3,
    aten.nll_loss2d_forward.default: 3,
    aten.nll_loss_backward.default: 4,
    aten.nll_loss2d_backward.default: 4,
}
MEAN, _SUM = 1, 2


def cut_once(tensor: Any, dim: int) -> Any:
    """Return the tensor with `dim` sharded over at most one mesh dimension.

    DTensor locates the rows of a shard by one mesh dimension only.
    """
    nd_sbp = tensor._of_sbp
    if nd_sbp.count(sbp.split(dim)) < 2:
        return tensor
    axis = nd_sbp.index(sbp.split(dim))
    return redistribute(
        tensor,
        tensor._of_placement,
        tuple(sbp.broadcast if r == sbp.split(dim) and i > axis else r for i, r in enumerate(nd_sbp)),
    )


def reshaped(func: Any, tensor: Any, *args: Any) -> Any:
    """Change the shape of a tensor in place: the tensor then wraps the DTensor of the new shape."""
    tensor._dtensor = getattr(aten, func._opname[:-1])(tensor, *args)._dtensor
    with no_dispatch():
        func(tensor, *args)
    return tensor


def of_same_rows(tensor: Any, dim: int, index: Any) -> bool:
    """Whether gather's index covers the tensor in every dimension except `dim`.

    Otherwise DTensor takes the rows of each rank's shard for the first rows.
    """
    return all(
        a == b for i, (a, b) in enumerate(zip(tensor.shape, index.shape)) if i != dim % max(tensor.ndim, 1)
    )


def attention(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Compute attention on each rank's samples and heads."""
    query = args[ATTENTION[func]]
    placement, size = query._of_placement, query.shape
    alike = all(t.shape[:2] == size[:2] for t in args[ATTENTION[func] :][:3])
    nd_sbp = tuple(r if alike and r in (sbp.split(0), sbp.split(1)) else sbp.broadcast for r in query._of_sbp)

    def part(
        tensor: Any,
    ) -> torch.Tensor:  # a mask may be the same for all samples or heads, or have two dimensions
        own = tuple(
            r
            if r._kind == "split" and tensor.ndim > 2 and tensor.shape[r._dim] == size[r._dim]
            else sbp.broadcast
            for r in nd_sbp
        )
        return redistribute(tensor, placement, own)._local_tensor

    if is_member(query.device_mesh):
        out = func(*map_tensors(part, args), **map_tensors(part, kwargs))
    else:
        out = [
            torch.empty((0,) * o.ndim, dtype=o.dtype)
            for o in func(
                *map_tensors(partial_results.shape, args), **map_tensors(partial_results.shape, kwargs)
            )
        ]
    ends = (
        [t.shape[2:] for t in args[1:4]] if ATTENTION[func] else [(*size[2:-1], args[2].shape[-1]), size[2:3]]
    )
    return tuple(from_shard(o, placement, nd_sbp, (*size[:2], *end)) for o, end in zip(out, ends))


def masks_the_future(scores: Any, mask: Any) -> bool:
    """Whether this is the mask that torch's attention makes for is_causal=True if it has no kernel.

    It has none for dropout or for one sample. The mask is an ordinary tensor, the same on every rank.
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


def strided(
    tensor: Any, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> GlobalDTensor:
    """Compute as_strided on the full tensor.

    The result is a view of every rank's memory, because its formula in backward() writes through it.
    """
    mesh, replicas = tensor.device_mesh, (sbp.broadcast,) * tensor.device_mesh.ndim
    local = redistribute(tensor, tensor._of_placement, replicas)._local_tensor
    local = local.as_strided(size, stride, offset) if is_member(mesh) else local.new_empty((0,) * len(size))
    return from_shard(local, tensor._of_placement, replicas, size)


def in_rows(tensor: Any) -> Any:
    """Return the tensor in contiguous memory, as OneFlow's global tensors always are.

    Otherwise each rank's shard may have its own memory order, which allows no view.
    """
    local = tensor._local_tensor
    return (
        tensor
        if tensor.is_contiguous() and local.is_contiguous()
        else from_shard(local.contiguous(), tensor._of_placement, tensor._of_sbp, tensor.shape)
    )


def viewed(func: Any, tensor: Any, size: Sequence[int]) -> GlobalDTensor:
    """Return a view of uneven shards in another shape.

    A sharded dimension stays sharded if the dimensions before it, or those after it, do not change.
    """
    rest = math.prod(n for n in size if n >= 0)
    size = [tensor.numel() // max(rest, 1) if n < 0 else n for n in size]
    nd_sbp, local_size, shift = [], list(size), len(size) - tensor.ndim
    kept = list(tensor._of_sbp)
    for i, r in enumerate(kept):
        d = r._dim if r._kind == "split" else None
        if d is None or list(tensor.shape[: d + 1]) == size[: d + 1]:
            nd_sbp.append(r)
        elif d + shift >= 0 and list(tensor.shape[d:]) == size[d + shift :]:
            nd_sbp.append(sbp.split(d + shift))
        else:
            kept[i] = sbp.broadcast
            nd_sbp.append(sbp.broadcast)
    local = redistribute(tensor, tensor._of_placement, tuple(kept))._local_tensor
    if not is_member(tensor.device_mesh):
        return from_shard(local.new_empty((0,) * len(size)), tensor._of_placement, tuple(nd_sbp), size)
    for old, new in zip(kept, nd_sbp):
        if new._kind == "split":
            local_size[new._dim] = local.shape[old._dim]
    return from_shard(local.reshape(local_size), tensor._of_placement, tuple(nd_sbp), size)


def kept_dims(func: Any, tensor: Any, dims: Sequence[int]) -> Any:
    """Compute a reduction with keepdim, whose remaining dimensions DTensor names as if keepdim were False."""
    out = func(tensor, dims)
    for d in sorted(d % tensor.ndim for d in dims):
        out = out.unsqueeze(d)
    return out


def samples(tensor: Any, data: bool) -> GlobalDTensor:
    """Return an operand of a convolution: data may be sharded by samples, weights are replicated."""
    nd_sbp = tuple(r if data and r == sbp.split(0) else sbp.broadcast for r in tensor._of_sbp)
    return redistribute(tensor, tensor._of_placement, nd_sbp)


def convolution(func: Any, args: tuple[Any, ...]) -> Any:
    """Compute a convolution on each rank's samples.

    DTensor shards samples over one mesh dimension only, and also computes on ranks without data.
    """
    backward = func is aten.convolution_backward.default
    data = args[1 if backward else 0]
    placement, nd_sbp = data._of_placement, data._of_sbp
    if backward:
        args = (redistribute(args[0], placement, nd_sbp), *args[1:])
        sums = tuple(sbp.partial_sum if r == sbp.split(0) else sbp.broadcast for r in nd_sbp)
        results = [(nd_sbp, data.shape), (sums, args[2].shape), (sums, args[3])]
    else:
        results = [(nd_sbp, func(*map_tensors(partial_results.shape, args)).shape)]
    local = map_tensors(lambda t: t._local_tensor, args)
    if is_member(data.device_mesh):
        out = func(*local)
        own = list(out) if backward else [out]
    else:
        own = [local[0].new_empty((0,) * len(size)) for _, size in results]
    mask = args[-1] if backward else [True]
    whole_of = tuple(
        from_shard(part, placement, *result) if needed else None
        for part, result, needed in zip(own, results, mask)
    )
    return whole_of if backward else whole_of[0]


def mean_of_targets(func: Any, *args: Any) -> Any:
    """Compute nll_loss or its gradient from that of the sum, and the weight of all targets."""
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
