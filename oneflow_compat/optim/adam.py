"""oneflow.optim.Adam."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .._bind import fall_through as _ft
from .optimizer import Optimizer, flag, floats

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT


__all__ = ["Adam"]


class AdamOptions(Optimizer):
    """What Adam and AdamW share: `do_bias_correction`, on torch's kernels."""

    @property
    def support_sparse(self) -> bool:
        return True

    def _init_group(
        self,
        group: dict[str, Any],
        params_with_grad: list[Any],
        grads: list[Any],
        exp_avgs: list[Any],
        exp_avg_sqs: list[Any],
        max_exp_avg_sqs: list[Any],
        state_steps: list[Any],
    ) -> bool:
        complex_params: bool = super()._init_group(  # type: ignore[misc]
            group, params_with_grad, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps
        )
        if not group["do_bias_correction"] and state_steps:
            # Both corrections are exactly 1 after infinitely many steps. The kernels advance these copies; we
            # advance the state.
            for i, step in enumerate(state_steps):
                step += 1
                state_steps[i] = torch.full_like(step, float("inf"))
        return complex_params


class Adam(AdamOptions, torch.optim.Adam):
    """Adam on torch's kernels; weight decay is L2, added to the gradient.

    `do_bias_correction=False`: p -= lr * m / (sqrt(v) + eps). `fused=False` leaves the choice of kernels to
    torch (`fused=None` there).
    """

    _option_names = (
        "lr",
        "eps",
        "betas",
        "weight_decay",
        "amsgrad",
        "bias_correction1",
        "bias_correction2",
        "do_bias_correction",
        "fused",
    )

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
        decoupled_weight_decay: bool = False,
    ) -> None:
        self._init_as(
            torch.optim.Adam,
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
            decoupled_weight_decay=decoupled_weight_decay,
        )


__getattr__, __dir__ = _ft(__name__, "torch.optim.adam")
