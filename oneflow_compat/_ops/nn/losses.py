"""Losses whose positional order differs, and labels of any integer type.

OneFlow has no `size_average` and `reduce`: what stands in those slots tells the caller. A str there
is OneFlow's `reduction`; None or a bool is torch's `size_average`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.nn import functional as F

__all__ = [
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "kl_div",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "sparse_softmax_cross_entropy",
    "one_hot",
    "integer_labels",
    "with_labels_in_a_row",
]


_LABELS = (torch.int8, torch.int16, torch.int32, torch.int64)


def too_many(rest: tuple[Any, ...]) -> None:
    """Refuse arguments left over after OneFlow's positional arguments."""
    if rest:
        raise TypeError(
            f"{len(rest)} positional argument(s) too many after OneFlow's (found {rest!r}); "
            "torch's order has size_average and reduce before reduction"
        )


def integer_labels(target: torch.Tensor) -> torch.Tensor:
    """int64 labels of smaller integer types, which torch's kernels refuse (uint8: some of them); anything
    else as it is.
    """
    if isinstance(target, torch.Tensor) and target.dtype in (
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
    ):
        return target.long()
    return target


def need_alike(loss: str, input: torch.Tensor, target: torch.Tensor) -> None:
    """Refuse an input and a target of two dtypes (TypeError) or sizes (RuntimeError), as OneFlow; torch
    promotes and broadcasts.

    Under autocast torch casts both first, so their dtypes may differ.
    """
    if not isinstance(input, torch.Tensor) or not isinstance(target, torch.Tensor):
        return  # a proxy of torch.fx, or torch's error
    if input.dtype is not target.dtype and not torch.is_autocast_enabled(input.device.type):
        raise TypeError(
            f"{loss}: input and target must have one dtype, found {input.dtype} and {target.dtype}; convert"
            " one with .to()"
        )
    if input.shape != target.shape:
        raise RuntimeError(
            f"{loss}: input and target must have one shape, found {tuple(input.shape)} and"
            f" {tuple(target.shape)}"
        )


def mse_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
    *torch_rest: Any,
    **torch_more: Any,
) -> torch.Tensor:
    """Mean squared error; differs from torch's: `reduction` is the third positional argument."""
    if isinstance(reduction, str):
        too_many(torch_rest)
        return F.mse_loss(input, target, reduction=reduction, **torch_more)
    return F.mse_loss(input, target, reduction, *torch_rest, **torch_more)


def l1_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
    *torch_rest: Any,
    **torch_more: Any,
) -> torch.Tensor:
    """Mean absolute error; differs from torch's: `reduction` is the third positional argument."""
    if isinstance(reduction, str):
        too_many(torch_rest)
        return F.l1_loss(input, target, reduction=reduction, **torch_more)
    return F.l1_loss(input, target, reduction, *torch_rest, **torch_more)


def smooth_l1_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    beta: float | None = 1.0,
    reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
    *torch_rest: Any,
    **torch_more: Any,
) -> torch.Tensor:
    """Smooth L1 loss; differs from torch's: `beta` and `reduction` are positional arguments 3 and 4, and
    nothing is promoted or broadcast.
    """
    need_alike("smooth_l1_loss", input, target)
    if _number(beta):
        too_many(torch_rest)
        return F.smooth_l1_loss(input, target, reduction=reduction, beta=beta, **torch_more)
    if isinstance(reduction, str):  # torch's size_average alone
        too_many(torch_rest)
        return F.smooth_l1_loss(input, target, beta, reduction=reduction, **torch_more)
    return F.smooth_l1_loss(input, target, beta, reduction, *torch_rest, **torch_more)


def kl_div(
    input: torch.Tensor,
    target: torch.Tensor,
    log_target: bool | None = False,
    reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
    *torch_rest: Any,
    **torch_more: Any,
) -> torch.Tensor:
    """Kullback-Leibler divergence; differs from torch's: `log_target` and `reduction` are arguments 3 and 4.

    A lone bool in slot 3 is OneFlow's `log_target`, not torch's `size_average`. Terms of negative targets are
    0 (torch: nan).
    """
    if isinstance(reduction, str):
        too_many(torch_rest)
        target = target if log_target else target.clamp(min=0)
        return F.kl_div(input, target, reduction=reduction, log_target=bool(log_target), **torch_more)
    return F.kl_div(input, target, log_target, reduction, *torch_rest, **torch_more)


def binary_cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
    *torch_rest: Any,
    **torch_more: Any,
) -> torch.Tensor:
    """Binary cross entropy of probabilities; differs from torch's: `reduction` is argument 4."""
    if isinstance(reduction, str):
        too_many(torch_rest)
        return F.binary_cross_entropy(input, target, weight, reduction=reduction, **torch_more)
    return F.binary_cross_entropy(input, target, weight, reduction, *torch_rest, **torch_more)


def binary_cross_entropy_with_logits(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | bool | None = None,
    reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
    *torch_rest: Any,
    **torch_more: Any,
) -> torch.Tensor:
    """Binary cross entropy of logits; differs from torch's: `pos_weight` and `reduction` are
    arguments 4 and 5.
    """
    if isinstance(pos_weight, bool) and isinstance(reduction, str):  # torch's size_average alone
        too_many(torch_rest)
        return F.binary_cross_entropy_with_logits(
            input, target, weight, pos_weight, reduction=reduction, **torch_more
        )
    if isinstance(reduction, str):
        too_many(torch_rest)
        return F.binary_cross_entropy_with_logits(
            input, target, weight, reduction=reduction, pos_weight=pos_weight, **torch_more
        )
    return F.binary_cross_entropy_with_logits(
        input, target, weight, pos_weight, reduction, *torch_rest, **torch_more
    )


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    ignore_index: int | None = -100,
    reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
    label_smoothing: float | bool | None = 0.0,
    *torch_rest: Any,
    **torch_more: Any,
) -> torch.Tensor:
    """Cross entropy; differs from torch's: arguments 4 to 6 are `ignore_index`, `reduction`,
    `label_smoothing`.

    Labels may be int32, int16 or int8, and have extra dimensions of size 1. torch's order is recognised by
    None or a bool in slot 4.
    """
    if _number(ignore_index):
        too_many(torch_rest)
        options = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}
    else:
        options = cross_entropy_slots(ignore_index, reduction, label_smoothing, torch_rest)
    return with_labels_in_a_row(
        lambda target: F.cross_entropy(input, target, weight, **options, **torch_more),
        input,
        integer_labels(target),
    )


def with_labels_in_a_row(
    loss: Callable[[torch.Tensor], torch.Tensor], input: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    """Return loss(target).

    OneFlow also takes labels with dimensions of size 1 added or left out, such as (N, 1) and (1, N). The
    result of reduction "none" then has the shape of the labels.
    """
    if not isinstance(input, torch.Tensor) or not isinstance(target, torch.Tensor):
        return loss(target)  # a proxy of torch.fx, or torch's error
    rows = input.shape[:1] + input.shape[2:]
    if input.dim() < 2 or target.is_floating_point() or target.shape == rows:
        return loss(target)
    if [size for size in target.shape if size != 1] != [size for size in rows if size != 1]:
        return loss(target)  # torch's error
    out = loss(target.reshape(rows))
    return out.reshape(target.shape) if out.dim() else out


def cross_entropy_slots(
    size_average: bool | None, ignore_index: Any, reduce: Any, rest: tuple[Any, ...]
) -> dict[str, Any]:
    """Keywords for torch's order (size_average, ignore_index, reduce, reduction, label_smoothing).

    The slots arrive under the names of OneFlow's (ignore_index, reduction, label_smoothing), so a
    keyword or a default may sit in them; its type tells.
    """
    keywords = {"size_average": size_average}
    keywords["reduction" if isinstance(ignore_index, str) else "ignore_index"] = ignore_index
    keywords["reduce" if reduce is None or isinstance(reduce, bool) else "label_smoothing"] = reduce
    keywords.update(zip(("reduction", "label_smoothing"), rest))
    return keywords


def sparse_softmax_cross_entropy(labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Cross entropy of each row of `logits` [..., C] with the class numbers `labels` [...]; not reduced.

    The result has the shape of `labels` and the dtype of `logits`.
    """
    need_labels("sparse_softmax_cross_entropy", logits, labels)
    flat = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1).long(), reduction="none")
    return flat.reshape(labels.shape)


def need_labels(loss: str, scores: torch.Tensor, labels: torch.Tensor) -> None:
    """Refuse labels that are no integers (TypeError) or not one for each row of scores (RuntimeError)."""
    if not isinstance(labels, torch.Tensor) or not isinstance(scores, torch.Tensor):
        return
    if labels.dtype not in _LABELS:
        raise TypeError(
            f"{loss}: labels must be int8, int32 or int64, found {labels.dtype}; convert them with .long()"
        )
    if labels.shape != scores.shape[:-1]:
        raise RuntimeError(
            f"{loss}: labels must have the shape of the scores without the last dimension,"
            f" {tuple(scores.shape[:-1])}, found {tuple(labels.shape)}"
        )


def one_hot(
    tensor: torch.Tensor, num_classes: int = -1, on_value: float = 1, off_value: float = 0
) -> torch.Tensor:
    """One-hot vectors of integer labels of any type; differs from torch's: `on_value` and `off_value`.

    Result: int64 when both values are whole numbers, else the default floating type.
    """
    labels = integer_labels(tensor)
    hot = F.one_hot(labels, num_classes)
    if isinstance(on_value, float) or isinstance(off_value, float):
        hot = hot.to(torch.get_default_dtype())
    elif (on_value, off_value) == (1, 0):
        return hot
    return hot * (on_value - off_value) + off_value


def _number(value: object) -> bool:
    return isinstance(value, (int, float, torch.SymInt)) and not isinstance(value, bool)
