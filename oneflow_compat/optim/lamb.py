"""oneflow.optim.LAMB (not in torch)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import _own
from .optimizer import Optimizer, check

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim.optimizer import ParamsT


__all__ = ["LAMB"]


class LAMB(Optimizer):
    """Adam's direction r, scaled per parameter by ||p|| / ||r||: p -= lr * ratio * (r + weight_decay * p).

    The ratio is 1 where either norm is 0. `adam_w_mode=False` adds weight_decay * p to the gradient
    instead. No amsgrad. Sparse and complex gradients raise.

    ValueError for amsgrad=True.
    """

    _option_names = (
        "lr",
        "eps",
        "betas",
        "weight_decay",
        "amsgrad",
        "adam_w_mode",
        "bias_correction1",
        "bias_correction2",
        "do_bias_correction",
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0,
        adam_w_mode: bool = True,
        do_bias_correction: bool = True,
        amsgrad: bool = False,
        contiguous_params: bool = False,
        *,
        maximize: bool = False,
        capturable: bool = False,
    ) -> None:
        check(lr >= 0.0, "lr", lr, "must not be negative")
        check(eps >= 0.0, "eps", eps, "must not be negative")
        check(weight_decay >= 0.0, "weight_decay", weight_decay, "must not be negative")
        for i, beta in enumerate(betas):
            check(0.0 <= beta < 1.0, f"betas[{i}]", beta, "must be in [0, 1)")
        if amsgrad:
            raise ValueError("LAMB has no AMSGrad variant: leave amsgrad=False")
        defaults = dict(
            lr=lr,
            betas=tuple(betas),
            eps=eps,
            weight_decay=weight_decay,
            adam_w_mode=adam_w_mode,
            do_bias_correction=do_bias_correction,
            amsgrad=False,
            contiguous_params=contiguous_params,
            maximize=maximize,
            capturable=capturable,
        )
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters from their gradients; `closure` recomputes the loss, which is returned."""
        loss = _own.run_closure(closure)
        for group in self.param_groups:
            lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
            for p, grad, state in _own.gather(self, group, {"exp_avg": 0.0, "exp_avg_sq": 0.0}, "LAMB"):
                step = state["step"].add_(1)
                if decay != 0 and not group["adam_w_mode"]:
                    grad = grad.add(p, alpha=decay)
                m = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
                v = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                if group["do_bias_correction"]:
                    m = m / _own.correction(beta1, step)
                    v = v / _own.correction(beta2, step)
                update = m / (v.sqrt() + group["eps"])
                p_norm, r_norm = torch.linalg.vector_norm(p), torch.linalg.vector_norm(update)
                ratio = torch.where((p_norm > 0) & (r_norm > 0), p_norm / r_norm, torch.ones_like(p_norm))
                if decay != 0 and group["adam_w_mode"]:
                    update = update.add(p, alpha=decay)
                p.sub_(update * (ratio * lr))
        return loss
