"""oneflow.optim.AdamW."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .._bind import fall_through as _ft
from .adam import Adam, AdamOptions
from .optimizer import flag, floats

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT


__all__ = ["AdamW"]


class AdamW(AdamOptions, torch.optim.AdamW):
    """Adam with decoupled weight decay on torch's kernels; the default `weight_decay` is 0 (torch: 0.01)."""

    _option_names = Adam._option_names[:4] + Adam._option_names[5:8] + ("amsgrad", "fused")

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0,
        amsgrad: bool = False,
        do_bias_correction: bool = True,
        contiguous_params: bool = False,
        fused: bool | None = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        self._init_as(
            torch.optim.AdamW,
            params,
            {"do_bias_correction": do_bias_correction, "contiguous_params": contiguous_params},
            lr=lr,
            betas=floats(betas),
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=flag(fused),
        )


__getattr__, __dir__ = _ft(__name__, "torch.optim.adamw")
