"""oneflow.optim.AdamW."""

from __future__ import annotations

import torch

from .._bind import fall_through as _ft
from .adam import Adam, AdamOptions
from .optimizer import flag, floats

__all__ = ["AdamW"]


class AdamW(AdamOptions, torch.optim.AdamW):
    """Adam with decoupled weight decay on torch's kernels; the default `weight_decay` is 0 (torch: 0.01)."""

    _option_names = Adam._option_names[:4] + Adam._option_names[5:8] + ("amsgrad", "fused")

    def __init__(
        self,
        params,
        lr=0.001,
        betas=(0.9, 0.999),
        eps=1e-08,
        weight_decay=0,
        amsgrad=False,
        do_bias_correction=True,
        contiguous_params=False,
        fused=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
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
