"""Losses as functions on blobs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .._functions.math import reduce_mean


def _reduce(loss: torch.Tensor, reduction: str) -> torch.Tensor:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f'reduction must be "none", "mean" or "sum", found {reduction!r}')
    if reduction == "none":
        return loss
    return reduce_mean(loss, None, False) if reduction == "mean" else loss.sum(dtype=loss.dtype)


def BCELoss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: Any = None,
    reduction: str = "mean",
    name: str | None = None,
) -> torch.Tensor:
    loss = -(target * torch.log(input) + (1 - target) * torch.log(1 - input))
    return _reduce(loss if weight is None else loss * weight, reduction)


def BCEWithLogitsLoss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: Any = None,
    pos_weight: Any = None,
    reduction: str = "mean",
    name: str | None = None,
) -> torch.Tensor:
    return _reduce(
        F.binary_cross_entropy_with_logits(input, target, weight, reduction="none", pos_weight=pos_weight),
        reduction,
    )


def KLDivLoss(
    input: torch.Tensor,
    target: torch.Tensor,
    log_target: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> torch.Tensor:
    """target * (log target - input); where the target is not positive the element is 0."""
    if log_target:
        return _reduce(torch.exp(target) * (target - input), reduction)
    positive = target > 0
    loss = target * (torch.log(torch.where(positive, target, torch.ones_like(target))) - input)
    return _reduce(torch.where(positive, loss, torch.zeros_like(loss)), reduction)


def L1Loss(
    input: torch.Tensor, target: torch.Tensor, reduction: str = "mean", name: str | None = None
) -> torch.Tensor:
    return _reduce((input - target).abs(), reduction)


def MSELoss(
    input: torch.Tensor, target: torch.Tensor, reduction: str = "mean", name: str | None = None
) -> torch.Tensor:
    return _reduce((input - target).square(), reduction)


def MarginRankingLoss(
    input1: torch.Tensor,
    input2: torch.Tensor,
    target: torch.Tensor,
    margin: float = 0.0,
    reduction: str = "mean",
    name: str | None = None,
) -> torch.Tensor:
    return _reduce(torch.clamp(-target * (input1 - input2) + margin, min=0), reduction)


def TripletMarginLoss(
    anchor: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> torch.Tensor:
    def distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a - b + eps).abs().pow(p).sum(-1).pow(1 / p)

    far = distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return _reduce(torch.clamp(distance(anchor, positive) - far + margin, min=0), reduction)


def sigmoid_cross_entropy_with_logits(
    labels: torch.Tensor, logits: torch.Tensor, name: str | None = None
) -> torch.Tensor:
    """Per element, the shape of logits."""
    return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")


def softmax_cross_entropy_with_logits(
    labels: torch.Tensor, logits: torch.Tensor, name: str | None = None
) -> torch.Tensor:
    """Labels are probabilities of the shape of logits; one loss per row."""
    return -(labels * F.log_softmax(logits, -1)).sum(-1)


def sparse_softmax_cross_entropy_with_logits(
    labels: torch.Tensor, logits: torch.Tensor, name: str | None = None
) -> torch.Tensor:
    """Labels are class indices, of shape logits.shape[:-1] or with a last dimension 1; one loss per row."""
    labels = _class_numbers(labels, logits)
    return F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), reduction="none"
    ).reshape(labels.shape)


def distributed_sparse_softmax_cross_entropy_with_logits(
    labels: torch.Tensor, logits: torch.Tensor, name: str | None = None
) -> torch.Tensor:
    return sparse_softmax_cross_entropy_with_logits(labels, logits)


def sparse_cross_entropy(
    labels: torch.Tensor, prediction: torch.Tensor, name: str | None = None
) -> torch.Tensor:
    """-log of the predicted probability of the labelled class."""
    labels = _class_numbers(labels, prediction)
    return -torch.log(torch.gather(prediction, -1, labels.unsqueeze(-1)).squeeze(-1))


def _class_numbers(labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    if labels.dim() == logits.dim() and labels.shape[-1] == 1:
        labels = labels.squeeze(-1)
    if labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)} do not fit logits of shape {tuple(logits.shape)}"
        )
    return labels.long()


def ctc_greedy_decoder(
    log_probs: torch.Tensor, input_lengths: torch.Tensor, merge_repeated: bool = True, name: str | None = None
) -> tuple[torch.Tensor, ...]:
    """Best path: (decoded (batch, time) int64 filled with 0, negative sum of the best logits (batch, 1)).

    log_probs: (time, batch, classes); class 0 is the blank.
    """
    time, batch, _ = log_probs.shape
    best, ids = log_probs.max(-1)
    steps = torch.arange(time, device=ids.device).unsqueeze(1)
    inside = steps < input_lengths.long().unsqueeze(0)
    neg_sum = -(best * inside).sum(0).reshape(batch, 1)
    previous = torch.cat([torch.full_like(ids[:1], -1), ids[:-1]])
    keep = inside & (ids != 0)
    if merge_repeated:
        keep = keep & (ids != previous)
    # dropped entries go to an extra row
    positions = torch.where(keep, keep.long().cumsum(0) - 1, torch.full_like(ids, time))
    out = torch.zeros(time + 1, batch, dtype=torch.int64, device=ids.device).scatter(0, positions, ids)
    return out[:time].t().contiguous(), neg_sum
