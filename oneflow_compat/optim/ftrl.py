"""The FTRL-proximal optimizer (not in torch); OneFlow has it as `oneflow.one_embedding.Ftrl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import _own
from .optimizer import Optimizer, check

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim.optimizer import ParamsT


__all__ = ["Ftrl"]


class Ftrl(Optimizer):
    """FTRL-proximal: n += g*g; z += g - (n**-lr_power - n_before**-lr_power) / lr * p; p = 0 where |z| <=
    lambda1, else p = (sign(z) * lambda1 - z) / ((beta + n**-lr_power) / lr + lambda2).

    OneFlow 0.9.0 on the CPU has n**lr_power there, which diverges for its own default of -0.5; pass it +0.5
    and the numbers are these. Weight decay is L2. Sparse and complex gradients raise.
    """

    _option_names = (
        "lr",
        "weight_decay",
        "lr_power",
        "initial_accumulator_value",
        "lambda1",
        "lambda2",
        "beta",
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.001,
        weight_decay: float = 0.0,
        lr_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        lambda1: float = 0.0,
        lambda2: float = 0.0,
        beta: float = 0.0,
    ) -> None:
        check(lr >= 0.0, "lr", lr, "must not be negative")
        check(weight_decay >= 0.0, "weight_decay", weight_decay, "must not be negative")
        check(
            initial_accumulator_value >= 0.0,
            "initial_accumulator_value",
            initial_accumulator_value,
            "must not be negative",
        )
        check(lr_power <= 0.0, "lr_power", lr_power, "must be at most 0")
        super().__init__(
            params,
            dict(
                lr=lr,
                weight_decay=weight_decay,
                lr_power=lr_power,
                lambda1=lambda1,
                lambda2=lambda2,
                beta=beta,
                initial_accumulator_value=initial_accumulator_value,
            ),
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = _own.run_closure(closure)
        for group in self.param_groups:
            lr, power, beta = group["lr"], -group["lr_power"], group["beta"]
            slots = {"accumulator_value": group["initial_accumulator_value"], "z": 0.0}
            for p, grad, state in _own.gather(self, group, slots, "Ftrl"):
                state["step"].add_(1)
                if group["weight_decay"] != 0:
                    grad = grad.add(p, alpha=group["weight_decay"])
                n, z = state["accumulator_value"], state["z"]
                n_new = n.addcmul(grad, grad)
                root = n_new.pow(power)
                z.add_(grad).sub_((root - n.pow(power)) / lr * p)
                n.copy_(n_new)
                shrunk = z.sign() * group["lambda1"] - z
                step = shrunk / ((beta + root) / lr + group["lambda2"])
                p.copy_(torch.where(z.abs() > group["lambda1"], step, torch.zeros_like(p)))
        return loss
