"""Loss modules whose constructor order differs: OneFlow has no `size_average` and `reduce`.

A str in the slot of torch's `size_average` is OneFlow's `reduction` (for the class-index losses a
number there is `ignore_index`); None or a bool there is a caller who means torch's order.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import torch
from torch import nn

from ... import _bind
from ..._errors import RefusedValue
from ..._ops.nn.losses import cross_entropy_slots, integer_labels, need_alike, too_many, with_labels_in_a_row
from ._same import SameAsTorch

__all__ = [
    "MSELoss",
    "L1Loss",
    "SmoothL1Loss",
    "KLDivLoss",
    "BCELoss",
    "BCEWithLogitsLoss",
    "MarginRankingLoss",
    "NLLLoss",
    "CrossEntropyLoss",
]


class _WithReduction:
    """Check `reduction` when the module is made, as OneFlow does; torch waits for the first call."""

    _reductions: tuple[str, ...] = ("none", "mean", "sum")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.reduction not in self._reductions:
            raise RefusedValue(
                f"{type(self).__name__}: reduction must be one of {self._reductions}, found"
                f" {self.reduction!r}"
            )


class MSELoss(_WithReduction, nn.MSELoss, metaclass=SameAsTorch):
    """torch's MSELoss, built with (reduction)."""

    _torch_class = nn.MSELoss

    def __init__(
        self,
        reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
        *torch_rest: Any,
        **torch_more: Any,
    ) -> None:
        if isinstance(reduction, str):
            too_many(torch_rest)
            super().__init__(reduction=reduction, **torch_more)
        else:
            super().__init__(reduction, *torch_rest, **torch_more)


class L1Loss(_WithReduction, nn.L1Loss, metaclass=SameAsTorch):
    """torch's L1Loss, built with (reduction)."""

    _torch_class = nn.L1Loss

    def __init__(
        self,
        reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
        *torch_rest: Any,
        **torch_more: Any,
    ) -> None:
        if isinstance(reduction, str):
            too_many(torch_rest)
            super().__init__(reduction=reduction, **torch_more)
        else:
            super().__init__(reduction, *torch_rest, **torch_more)


class SmoothL1Loss(_WithReduction, nn.SmoothL1Loss, metaclass=SameAsTorch):
    """torch's SmoothL1Loss, built with (reduction, beta)."""

    _torch_class = nn.SmoothL1Loss

    def __init__(
        self,
        reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
        beta: float | None = 1.0,
        *torch_rest: Any,
        **torch_more: Any,
    ) -> None:
        if isinstance(reduction, str):
            too_many(torch_rest)
            super().__init__(reduction=reduction, beta=beta, **torch_more)
        elif beta is None or isinstance(beta, bool):
            super().__init__(reduction, beta, *torch_rest, **torch_more)
        else:
            super().__init__(reduction, beta=beta, **torch_more)

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        need_alike("SmoothL1Loss", input, target)
        return super().forward(input, target)


class KLDivLoss(_WithReduction, nn.KLDivLoss, metaclass=SameAsTorch):
    """torch's KLDivLoss, built with (reduction, log_target); terms of negative targets are 0 (torch: nan)."""

    _torch_class = nn.KLDivLoss
    _reductions = ("none", "mean", "sum", "batchmean")

    def __init__(
        self,
        reduction: Literal["none", "mean", "sum", "batchmean"] | bool | None = "mean",
        log_target: bool | None = False,
        *torch_rest: Any,
        **torch_more: Any,
    ) -> None:
        if isinstance(reduction, str):
            too_many(torch_rest)
            super().__init__(reduction=reduction, log_target=log_target, **torch_more)
        elif torch_rest:
            super().__init__(reduction, log_target, *torch_rest, **torch_more)
        else:
            super().__init__(reduction, log_target=bool(log_target), **torch_more)

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return super().forward(input, target if self.log_target else target.clamp(min=0))


class BCELoss(_WithReduction, nn.BCELoss, metaclass=SameAsTorch):
    """torch's BCELoss, built with (weight, reduction)."""

    _torch_class = nn.BCELoss

    def __init__(
        self,
        weight: torch.Tensor | None = None,
        reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
        *torch_rest: Any,
        **torch_more: Any,
    ) -> None:
        if isinstance(reduction, str):
            too_many(torch_rest)
            super().__init__(weight, reduction=reduction, **torch_more)
        else:
            super().__init__(weight, reduction, *torch_rest, **torch_more)


class BCEWithLogitsLoss(_WithReduction, nn.BCEWithLogitsLoss, metaclass=SameAsTorch):
    """torch's BCEWithLogitsLoss, built with (weight, reduction, pos_weight)."""

    _torch_class = nn.BCEWithLogitsLoss

    def __init__(
        self,
        weight: torch.Tensor | None = None,
        reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
        pos_weight: torch.Tensor | bool | None = None,
        *torch_rest: Any,
        **torch_more: Any,
    ) -> None:
        if isinstance(reduction, str):
            too_many(torch_rest)
            super().__init__(weight, reduction=reduction, pos_weight=pos_weight, **torch_more)
        elif torch_rest or isinstance(pos_weight, bool):
            super().__init__(weight, reduction, pos_weight, *torch_rest, **torch_more)
        else:
            super().__init__(weight, reduction, pos_weight=pos_weight, **torch_more)


class MarginRankingLoss(_WithReduction, nn.MarginRankingLoss, metaclass=SameAsTorch):
    """torch's MarginRankingLoss, built with (margin, reduction)."""

    _torch_class = nn.MarginRankingLoss

    def __init__(
        self,
        margin: float = 0.0,
        reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
        *torch_rest: Any,
        **torch_more: Any,
    ) -> None:
        if isinstance(reduction, str):
            too_many(torch_rest)
            super().__init__(margin, reduction=reduction, **torch_more)
        else:
            super().__init__(margin, reduction, *torch_rest, **torch_more)


class NLLLoss(_WithReduction, nn.NLLLoss, metaclass=SameAsTorch):
    """torch's NLLLoss, built with (weight, ignore_index, reduction); labels of any integer type."""

    _torch_class = nn.NLLLoss

    def __init__(
        self,
        weight: torch.Tensor | None = None,
        ignore_index: int | None = -100,
        reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
        *torch_rest: Any,
        **torch_more: Any,
    ) -> None:
        if _index(ignore_index):
            too_many(torch_rest)
            super().__init__(weight, ignore_index=ignore_index, reduction=reduction, **torch_more)
        elif isinstance(reduction, str):
            too_many(torch_rest)
            super().__init__(weight, ignore_index, reduction=reduction, **torch_more)
        else:
            super().__init__(weight, ignore_index, reduction, *torch_rest, **torch_more)

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return super().forward(input, integer_labels(target))


class CrossEntropyLoss(_WithReduction, nn.CrossEntropyLoss, metaclass=SameAsTorch):
    """torch's CrossEntropyLoss, built with (weight, ignore_index, reduction, label_smoothing).

    Labels may have any integer type and extra dimensions of size 1, for example the shape (N, 1).
    """

    _torch_class = nn.CrossEntropyLoss

    def __init__(
        self,
        weight: torch.Tensor | None = None,
        ignore_index: int | None = -100,
        reduction: Literal["none", "mean", "sum"] | bool | None = "mean",
        label_smoothing: float | bool | None = 0.0,
        *torch_rest: Any,
        **torch_more: Any,
    ) -> None:
        if _index(ignore_index):
            too_many(torch_rest)
            super().__init__(
                weight,
                ignore_index=ignore_index,
                reduction=reduction,
                label_smoothing=label_smoothing,
                **torch_more,
            )
        else:
            super().__init__(
                weight,
                **cross_entropy_slots(ignore_index, reduction, label_smoothing, torch_rest),
                **torch_more,
            )

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return with_labels_in_a_row(functools.partial(super().forward, input), input, integer_labels(target))


def _index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.loss", classes=True)
