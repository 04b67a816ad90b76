"""The classes of a partial fully-connected layer, also of one whose weight lies on several ranks."""

from __future__ import annotations

from typing import Any

import torch

from .. import _processes, sbp
from .._global.collectives import checking, nested
from .._global.failures import transfer
from .._global.marks import OfSeveralRanks
from . import creation

__all__ = ["distributed_partial_fc_sample"]


def distributed_partial_fc_sample(
    weight: torch.Tensor, label: torch.Tensor, num_sample: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Classes for a partial fully-connected layer: all labels' rows of `weight` and random others,
    `num_sample` in total.

    Returns (label numbered within the sample, the sampled class ids in ascending order, their rows of
    weight). With more positive classes than num_sample all of them are kept. A global weight split along
    dimension 0 is sampled by each rank, and the rows stay there.

    RuntimeError if `num_sample` exceeds the number of classes.
    """
    if isinstance(weight, OfSeveralRanks):
        return _sample(weight, label, int(num_sample))
    classes, count, positive = weight.shape[0], int(num_sample), label.reshape(-1).long()
    # Read the labels only if they can exceed the sample. Otherwise the size is fixed: one graph program.
    if positive.numel() > count:
        count = max(count, positive.unique().numel())
    if count > classes:
        raise RuntimeError(f"distributed_partial_fc_sample: asked for {num_sample} of {classes} classes")
    chosen = torch.rand(classes, device=weight.device).index_fill(0, positive, 2.0)
    sampled = torch.topk(chosen, count).indices.sort().values
    return torch.searchsorted(sampled, label.long()).to(label.dtype), sampled.to(label.dtype), weight[sampled]


def _sample(
    weight: torch.Tensor, label: torch.Tensor, num_sample: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As distributed_partial_fc_sample, where rows of a split weight stay on their rank: ids and rows come
    split along dimension 0 as the weight is, each rank's among its own classes.

    If the ranks cannot share classes or samples evenly, or `weight` has another SBP, the full weight is
    sampled, and ids and rows are broadcast.
    """
    call = "distributed_partial_fc_sample"
    with checking(call) as request:
        _check_arguments(weight, label, num_sample)
        request.must_match(weight=_about(weight), label=_about(label), num_sample=num_sample)
    with nested(), transfer(call):
        return _sampled(weight, label, num_sample)


def _about(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.dtype, tensor.placement, tensor.sbp


def _check_arguments(weight: torch.Tensor, label: torch.Tensor, num_sample: int) -> None:
    if not (weight.is_global and label.is_global):
        raise RuntimeError(
            "distributed_partial_fc_sample: weight and label must both be global tensors; make them so with"
            " to_global"
        )
    if (
        isinstance(num_sample, bool)
        or not isinstance(num_sample, int)
        or not 0 < num_sample <= weight.shape[0]
    ):
        raise ValueError(
            f"distributed_partial_fc_sample: num_sample must be between 1 and the {weight.shape[0]} classes,"
            f" found {num_sample!r}"
        )


def _sampled(
    weight: torch.Tensor, label: torch.Tensor, num_sample: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    placement, classes, ranks = weight.placement, weight.shape[0], weight.placement.ranks.size
    everywhere = (sbp.broadcast,) * placement.ranks.ndim
    split = weight.sbp == (sbp.split(0),) and classes % ranks == num_sample % ranks == 0
    sharding = (sbp.split(0),) if split else everywhere
    rows = weight.to_global(sbp=sharding).to_local()
    chances = creation.rand(classes, placement=placement, sbp=sharding).to_local()
    labels = label.to_global(placement, everywhere).to_local()
    if _processes.get_rank() in placement.ranks:
        shard_index = placement.ranks.flatten().tolist().index(_processes.get_rank()) if split else 0
        mapped, ids, rows = _of_rank(
            rows, labels.long(), num_sample // ranks if split else num_sample, chances, shard_index
        )
    else:
        mapped, ids = labels, labels.flatten()
    mapped = (
        mapped.to(label.dtype)
        .to_global(placement, (sbp.partial_sum,) if split else everywhere)
        .to_global(sbp=everywhere)
    )
    return mapped, ids.to(label.dtype).to_global(placement, sharding), rows.to_global(placement, sharding)


def _of_rank(
    rows: torch.Tensor, labels: torch.Tensor, count: int, chances: torch.Tensor, shard_index: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return one rank's shard of the results. Labels of other ranks' classes are mapped to 0."""
    size, positive = len(rows), labels.flatten()
    # Each rank sees all labels and samples as many classes as the rank with the most positive ones needs.
    if positive.numel() > count:
        count = max(count, int((positive.unique() // size).bincount().max()))
    own = labels - shard_index * size
    inside = (own >= 0) & (own < size)
    chances = torch.cat([chances, chances.new_zeros(1)]).index_fill(
        0, own.where(inside, size).flatten(), 2.0
    )[:size]
    sampled = chances.topk(count).indices.sort().values
    return (
        (torch.searchsorted(sampled, own) + shard_index * count) * inside,
        sampled + shard_index * size,
        rows[sampled],
    )
