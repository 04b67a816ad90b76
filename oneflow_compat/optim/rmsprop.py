"""oneflow.optim.RMSprop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .._bind import fall_through as _ft
from . import _own
from .optimizer import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.optim.optimizer import ParamsT

    from ._own import Entry


__all__ = ["RMSprop"]


class RMSprop(Optimizer, torch.optim.RMSprop):
    """p -= lr * g / sqrt(mean(g*g) + eps): eps inside the root (torch: outside); lr defaults to 1e-3.

    `centered` subtracts mean(g)**2 under the root; weight decay is L2. `momentum` > 0, which OneFlow
    refuses, accumulates lr-free updates as torch does. Complex parameters and sparse gradients raise.
    """

    _option_names = ("lr", "alpha", "eps", "weight_decay", "centered")

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 0.001,
        alpha: float = 0.99,
        eps: float = 1e-08,
        weight_decay: float = 0,
        momentum: float = 0.0,
        centered: bool = False,
        contiguous_params: bool = False,
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        self._init_as(
            torch.optim.RMSprop,
            params,
            {"contiguous_params": contiguous_params},
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            capturable=capturable,
            foreach=foreach,
            maximize=maximize,
            differentiable=differentiable,
        )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = _own.run_closure(closure)
        for group in self.param_groups:
            slots = {"square_avg": 0.0}
            if group["centered"]:
                slots["grad_avg"] = 0.0
            if group["momentum"] > 0:
                slots["momentum_buffer"] = 0.0
            with torch.set_grad_enabled(bool(group.get("differentiable"))):
                entries = _own.gather(self, group, slots, "RMSprop")
                if entries:
                    (_foreach if _own.use_foreach(group, entries) else _single)(group, entries)
        return loss


def _single(group: dict[str, Any], entries: Sequence[Entry]) -> None:
    lr, alpha, eps = group["lr"], group["alpha"], group["eps"]
    for p, grad, state in entries:
        state["step"] += 1
        if group["weight_decay"] != 0:
            grad = grad.add(p, alpha=group["weight_decay"])
        square = state["square_avg"].mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"].mul_(alpha).add_(grad, alpha=1 - alpha)
            square = square.addcmul(mean, mean, value=-1)
        root = (square + eps).sqrt_()
        if group["momentum"] > 0:
            grad, root = state["momentum_buffer"].mul_(group["momentum"]).addcdiv_(grad, root), None
        if torch.is_tensor(lr):
            p.sub_((grad if root is None else grad / root) * lr)
        elif root is None:
            p.add_(grad, alpha=-lr)
        else:
            p.addcdiv_(grad, root, value=-lr)


def _foreach(group: dict[str, Any], entries: Sequence[Entry]) -> None:
    """The same operations in the same order on all tensors at once."""
    lr, alpha, eps = group["lr"], group["alpha"], group["eps"]
    params = [p for p, _, _ in entries]
    grads: Any = [g for _, g, _ in entries]
    torch._foreach_add_([s["step"] for _, _, s in entries], 1)
    if group["weight_decay"] != 0:
        grads = torch._foreach_add(grads, params, alpha=group["weight_decay"])
    squares: Any = [s["square_avg"] for _, _, s in entries]
    torch._foreach_mul_(squares, alpha)
    torch._foreach_addcmul_(squares, grads, grads, value=1 - alpha)
    if group["centered"]:
        means = [s["grad_avg"] for _, _, s in entries]
        torch._foreach_mul_(means, alpha)
        torch._foreach_add_(means, grads, alpha=1 - alpha)
        squares = torch._foreach_addcmul(squares, means, means, value=-1)
    roots: Any = torch._foreach_add(squares, eps)
    torch._foreach_sqrt_(roots)
    if group["momentum"] > 0:
        buffers = [s["momentum_buffer"] for _, _, s in entries]
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_addcdiv_(buffers, grads, roots)
        grads, roots = buffers, None
    if torch.is_tensor(lr):
        updates = grads if roots is None else torch._foreach_div(grads, roots)
        torch._foreach_sub_(params, torch._foreach_mul(updates, lr))
    elif roots is None:
        torch._foreach_add_(params, grads, alpha=-lr)
    else:
        torch._foreach_addcdiv_(params, grads, roots, value=-lr)


__getattr__, __dir__ = _ft(__name__, "torch.optim.rmsprop")
