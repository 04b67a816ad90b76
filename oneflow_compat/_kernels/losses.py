"""Losses and scores under OneFlow's raw signatures."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .._global.tensor import replicated_like
from .._ops.nn.losses import need_labels
from . import _ext, kernels

__all__ = [
    "binary_cross_entropy_loss",
    "binary_cross_entropy_with_logits_loss",
    "binary_cross_entropy_with_logits_loss_grad",
    "combined_margin_loss",
    "ctc_greedy_decoder",
    "ctc_loss",
    "distributed_sparse_cross_entropy",
    "kl_div_loss",
    "nll_loss",
    "smooth_l1_loss",
    "softmax_cross_entropy",
    "softmax_cross_entropy_grad",
    "sparse_cross_entropy",
    "sparse_softmax_cross_entropy",
]


def _labels(name: str, scores: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    need_labels(name, scores, label)
    return label.long().unsqueeze(-1)


def sparse_cross_entropy(prediction: torch.Tensor, label: torch.Tensor, depth: int) -> torch.Tensor:
    """-log(prediction[label]) for each sample. prediction (..., depth) holds probabilities, label (...) class
    ids.

    RuntimeError unless `depth` is the last dimension of prediction.
    """
    if prediction.shape[-1] != depth:
        raise RuntimeError(
            f"sparse_cross_entropy: depth {depth} is not the last dimension of prediction"
            f" {tuple(prediction.shape)}"
        )
    return -prediction.gather(-1, _labels("sparse_cross_entropy", prediction, label)).squeeze(-1).log()


distributed_sparse_cross_entropy = sparse_cross_entropy


def sparse_softmax_cross_entropy(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Cross entropy of each sample: logits (..., classes), label (...) class ids.

    The result has the shape of the label and the dtype of the logits.
    """
    return (
        -torch.log_softmax(logits, -1)
        .gather(-1, _labels("sparse_softmax_cross_entropy", logits, label))
        .squeeze(-1)
    )


def softmax_cross_entropy(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Cross entropy of each sample: logits and label (probabilities) of one shape (..., classes).

    The result has shape (...). TypeError for two dtypes, RuntimeError for two shapes.
    """
    if logits.dtype is not label.dtype and not torch.is_autocast_enabled(logits.device.type):
        raise TypeError(
            f"softmax_cross_entropy: logits and label must have one dtype, found {logits.dtype} and"
            f" {label.dtype}"
        )
    if logits.shape != label.shape:
        raise RuntimeError(
            f"softmax_cross_entropy: logits and label must have one shape, found {tuple(logits.shape)} and"
            f" {tuple(label.shape)}"
        )
    return -(label * torch.log_softmax(logits, -1)).sum(-1)


def softmax_cross_entropy_grad(dy: torch.Tensor, label: torch.Tensor, prob: torch.Tensor) -> torch.Tensor:
    """Gradient of softmax_cross_entropy with respect to the logits: dy * (prob - label).

    prob and label have shape (..., classes), dy has shape (...); the result has the shape of prob.
    """
    return dy.unsqueeze(-1) * (prob - label)


def binary_cross_entropy_loss(
    input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, reduction: str = "mean"
) -> torch.Tensor:
    """torch.nn.functional.binary_cross_entropy."""
    return F.binary_cross_entropy(input, target, weight, reduction=reduction)


def binary_cross_entropy_with_logits_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: str = "mean",
) -> torch.Tensor:
    """torch.nn.functional.binary_cross_entropy_with_logits."""
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=reduction, pos_weight=pos_weight
    )


def binary_cross_entropy_with_logits_loss_grad(
    dy: torch.Tensor,
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """Gradient of the unreduced loss with respect to the input.

    It has the shape and dtype of the input.
    """
    grad = torch.sigmoid(input) - target
    if pos_weight is not None:
        grad = (1 + (pos_weight - 1) * target) * torch.sigmoid(input) - pos_weight * target
    return dy * (grad if weight is None else grad * weight)


def kl_div_loss(
    input: torch.Tensor, target: torch.Tensor, log_target: bool = False, reduction: str = "mean"
) -> torch.Tensor:
    """torch.nn.functional.kl_div; terms of negative targets are 0."""
    target = target if log_target else target.clamp(min=0)
    return F.kl_div(input, target, reduction=reduction, log_target=log_target)


def nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """torch.nn.functional.nll_loss, ignore_index and reduction also by position."""
    return F.nll_loss(input, target.long(), weight, ignore_index=ignore_index, reduction=reduction)


def smooth_l1_loss(
    logits: torch.Tensor, label: torch.Tensor, beta: float = 1.0, reduction: str = "mean"
) -> torch.Tensor:
    """torch.nn.functional.smooth_l1_loss, beta and reduction also by position."""
    return F.smooth_l1_loss(logits, label, reduction=reduction, beta=beta)


def combined_margin_loss(
    x: torch.Tensor, label: torch.Tensor, m1: float, m2: float, m3: float
) -> torch.Tensor:
    """The logits with the label's entry replaced by cos(m1 * acos(x) + m2) - m3 (ArcFace, CosFace,
    SphereFace).

    x (batch, classes) of cosines; a label outside the classes changes nothing.

    RuntimeError unless there is one label for each row.
    """
    if x.ndim < 2 or label.numel() != x.shape[0]:
        raise RuntimeError(
            f"combined_margin_loss: x must be (batch, classes) with one label a row, found {tuple(x.shape)}"
            f" and {tuple(label.shape)}"
        )
    hot = label.reshape(-1, 1) == replicated_like(torch.arange(x.shape[1], device=x.device), label)
    hot = hot.reshape(hot.shape + (1,) * (x.ndim - 2))
    safe = torch.where(hot, x, 0.0)
    if m1 == 1.0 and m2 == 0.0:
        return torch.where(hot, safe - m3, x)
    return torch.where(hot, torch.cos(torch.acos(safe) * m1 + m2) - m3, x)


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    max_target_length: int | None = None,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
) -> torch.Tensor:
    """torch.nn.functional.ctc_loss; max_target_length only sized OneFlow's buffers."""
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)


@torch.no_grad()
def ctc_greedy_decoder(
    log_probs: torch.Tensor, input_lengths: torch.Tensor, merge_repeated: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """(decoded [N, T] int64 padded by zeros, -sum of the best log probabilities [N, 1]) of log_probs (T, N,
    C). The blank is class C - 1.

    RuntimeError unless input_lengths has shape (N,).
    """
    if log_probs.ndim != 3 or tuple(input_lengths.shape) != (log_probs.shape[1],):
        raise RuntimeError(
            "ctc_greedy_decoder: log_probs must be (T, N, C) with N input_lengths, found"
            f" {tuple(log_probs.shape)} and {tuple(input_lengths.shape)}"
        )
    if log_probs.shape[2] and _ext.use(log_probs, dtypes=_ext.WIDE):
        return kernels.run.ctc_greedy_decode(
            log_probs, input_lengths.to(device=log_probs.device, dtype=torch.int64), merge_repeated
        )
    return ctc_greedy_decoder_ref(log_probs, input_lengths, merge_repeated)


def ctc_greedy_decoder_ref(
    log_probs: torch.Tensor, input_lengths: torch.Tensor, merge_repeated: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    steps, _, classes = log_probs.shape
    best, path = log_probs.transpose(0, 1).max(-1)
    inside = torch.arange(steps, device=path.device) < input_lengths.reshape(-1, 1)
    keep = inside & (path != classes - 1)
    if merge_repeated:
        keep[:, 1:] &= path[:, 1:] != path[:, :-1]
    order = torch.argsort((~keep).to(torch.uint8), dim=1, stable=True)
    decoded = torch.where(keep, path, 0).gather(1, order)
    return decoded, -torch.where(inside, best, 0).sum(1, keepdim=True)
