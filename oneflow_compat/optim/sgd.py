"""oneflow.optim.SGD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .._bind import fall_through as _ft
from .optimizer import Optimizer, check, flag

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT


__all__ = ["SGD"]


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent on torch's kernels.

    With momentum the buffer starts at zero, so `dampening` acts on the first step too (torch's first
    buffer is the undamped gradient), and nesterov goes with any dampening. `maximize` is always
    honoured. `contiguous_params=True` packs parameters and gradients into one buffer per dtype.
    """

    _counts_steps = False
    _renames = {"momentum_buffer": "momentum_buf"}
    _option_names = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "fused")

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 0.001,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
        contiguous_params: bool = False,
        fused: bool | None = False,
        *,
        foreach: bool | None = None,
        differentiable: bool = False,
    ) -> None:
        check(momentum >= 0.0, "momentum", momentum, "must not be negative")
        self._init_as(
            torch.optim.SGD,
            params,
            {"nesterov": nesterov, "contiguous_params": contiguous_params},
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=False,
            maximize=maximize,
            foreach=foreach,
            differentiable=differentiable,
            fused=flag(fused),
        )

    @property
    def support_sparse(self) -> bool:
        return True

    def _init_group(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], momentum_buffer_list: list[Any]
    ) -> bool:
        sparse = super()._init_group(group, params, grads, momentum_buffer_list)
        if group["momentum"] != 0 and group["dampening"] != 0:
            for i, buffer in enumerate(momentum_buffer_list):
                if buffer is None:
                    momentum_buffer_list[i] = torch.zeros_like(params[i], memory_format=torch.preserve_format)
        return sparse


__getattr__, __dir__ = _ft(__name__, "torch.optim.sgd")
