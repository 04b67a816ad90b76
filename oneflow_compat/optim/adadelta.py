"""oneflow.optim.Adadelta."""

from __future__ import annotations

import torch

from .._bind import fall_through as _ft
from .optimizer import Optimizer

__all__ = ["Adadelta"]


class Adadelta(Optimizer, torch.optim.Adadelta):
    """Adadelta on torch's kernels; `maximize` is the sixth positional argument (torch: foreach)."""

    _renames = {"square_avg": "square_avgs", "acc_delta": "acc_deltas"}
    _option_names = ("lr", "rho", "eps", "maximize", "weight_decay")

    def __init__(
        self,
        params,
        lr=1.0,
        rho=0.9,
        eps=1e-06,
        weight_decay=0,
        maximize=False,
        contiguous_params=False,
        *,
        foreach=None,
        capturable=False,
        differentiable=False,
    ):
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
