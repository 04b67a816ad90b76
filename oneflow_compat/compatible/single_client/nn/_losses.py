"""Losses as functions on blobs."""

import torch
import torch.nn.functional as F

from .._math import reduce_mean


def _reduce(loss, reduction):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f'reduction must be "none", "mean" or "sum", found {reduction!r}')
    if reduction == "none":
        return loss
    return reduce_mean(loss, None, False) if reduction == "mean" else loss.sum(dtype=loss.dtype)


def BCELoss(input, target, weight=None, reduction="mean", name=None):
    loss = -(target * torch.log(input) + (1 - target) * torch.log(1 - input))
    return _reduce(loss if weight is None else loss * weight, reduction)


def BCEWithLogitsLoss(input, target, weight=None, pos_weight=None, reduction="mean", name=None):
    return _reduce(
        F.binary_cross_entropy_with_logits(input, target, weight, reduction="none", pos_weight=pos_weight),
        reduction,
    )


def KLDivLoss(input, target, log_target=False, reduction="mean", name=None):
    """target * (log target - input); where the target is not positive the element is 0."""
    if log_target:
        return _reduce(torch.exp(target) * (target - input), reduction)
    positive = target > 0
    loss = target * (torch.log(torch.where(positive, target, torch.ones_like(target))) - input)
    return _reduce(torch.where(positive, loss, torch.zeros_like(loss)), reduction)


def L1Loss(input, target, reduction="mean", name=None):
    return _reduce((input - target).abs(), reduction)


def MSELoss(input, target, reduction="mean", name=None):
    return _reduce((input - target).square(), reduction)


def MarginRankingLoss(input1, input2, target, margin=0.0, reduction="mean", name=None):
    return _reduce(torch.clamp(-target * (input1 - input2) + margin, min=0), reduction)


def TripletMarginLoss(
    anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction="mean", name=None
):
    def distance(a, b):
        return (a - b + eps).abs().pow(p).sum(-1).pow(1 / p)

    far = distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return _reduce(torch.clamp(distance(anchor, positive) - far + margin, min=0), reduction)


def sigmoid_cross_entropy_with_logits(labels, logits, name=None):
    """Per element, the shape of logits."""
    return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")


def softmax_cross_entropy_with_logits(labels, logits, name=None):
    """Labels are probabilities of the shape of logits; one loss per row."""
    return -(labels * F.log_softmax(logits, -1)).sum(-1)


def sparse_softmax_cross_entropy_with_logits(labels, logits, name=None):
    """Labels are class indices, of shape logits.shape[:-1] or with a last dimension 1; one loss per row."""
    labels = _class_numbers(labels, logits)
    return F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), reduction="none"
    ).reshape(labels.shape)


def distributed_sparse_softmax_cross_entropy_with_logits(labels, logits, name=None):
    return sparse_softmax_cross_entropy_with_logits(labels, logits)


def sparse_cross_entropy(labels, prediction, name=None):
    """-log of the predicted probability of the labelled class."""
    labels = _class_numbers(labels, prediction)
    return -torch.log(torch.gather(prediction, -1, labels.unsqueeze(-1)).squeeze(-1))


def _class_numbers(labels, logits):
    if labels.dim() == logits.dim() and labels.shape[-1] == 1:
        labels = labels.squeeze(-1)
    if labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)} do not fit logits of shape {tuple(logits.shape)}"
        )
    return labels.long()


def ctc_greedy_decoder(log_probs, input_lengths, merge_repeated=True, name=None):
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
    positions = torch.where(
        keep, keep.long().cumsum(0) - 1, torch.full_like(ids, time)
    )  # dropped entries go to an extra row
    out = torch.zeros(time + 1, batch, dtype=torch.int64, device=ids.device).scatter(0, positions, ids)
    return out[:time].t().contiguous(), neg_sum
