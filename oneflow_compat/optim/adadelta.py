"""oneflow.optim.Adadelta."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .._bind import fall_through as _ft
from .optimizer import Optimizer

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT


__all__ = ["Adadelta"]


class Adadelta(Optimizer, torch.optim.Adadelta):
    """Adadelta on torch's kernels; `maximize` is the sixth positional argument (torch: foreach)."""

    _renames = {"square_avg": "square_avgs", "acc_delta": "acc_deltas"}
    _option_names = ("lr", "rho", "eps", "maximize", "weight_decay")

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-06,
        weight_decay: float = 0,
        maximize: bool = False,
        contiguous_params: bool = False,
        *,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        self._init_as(
            torch.optim.Adadelta,
            params,
            {"contiguous_params": contiguous_params},
            lr=lr,
            rho=rho,
            eps=eps,
            weight_decay=weight_decay,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
        )


__getattr__, __dir__ = _ft(__name__, "torch.optim.adadelta")
