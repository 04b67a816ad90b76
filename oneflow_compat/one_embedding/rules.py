"""How each optimizer updates rows: which states a row keeps behind the embedding, and one step.

A row is [embedding | state | state ...]. The formulas are those of `oneflow._C.one_embedding_*_update`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .._errors import difference_hint
from .._kernels import embedding as ops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Rule:
    """What an optimizer does to rows.

    A row has `states` embeddings of state, which begin with the values `initial`, and `extra` numbers.
    `update(rows, gradients, embedding_size, lr)` returns the new rows.
    """

    def __init__(
        self,
        states: int,
        update: Callable[..., torch.Tensor],
        initial: float | tuple[float, ...] = 0.0,
        extra: int = 0,
    ) -> None:
        self.states, self.update, self.initial, self.extra = states, update, initial, extra


def _sgd(group: Mapping[str, Any], step: int) -> Rule:
    if group.get("nesterov") or group.get("dampening"):
        raise NotImplementedError(
            "one_embedding: SGD on rows supports momentum, not nesterov or dampening"
            f" {difference_hint('one-embedding-optimizers')}"
        )
    momentum = group.get("momentum", 0.0)

    def update(rows: torch.Tensor, grad: torch.Tensor, size: int, lr: float) -> torch.Tensor:
        return ops.one_embedding_sgd_update(
            len(rows),
            rows,
            grad,
            None,
            learning_rate_val=lr,
            weight_decay=group.get("weight_decay", 0.0),
            momentum=momentum,
            line_size=rows.shape[1],
            embedding_size=size,
        )

    return Rule(int(momentum != 0), update)


def _adam(group: Mapping[str, Any], step: int, smart: bool = False) -> Rule:
    if group.get("amsgrad"):
        raise NotImplementedError(
            f"one_embedding: Adam on rows has no amsgrad {difference_hint('one-embedding-optimizers')}"
        )
    beta1, beta2 = group["betas"]
    correct = group.get("do_bias_correction", True)

    def update(rows: torch.Tensor, grad: torch.Tensor, size: int, lr: float) -> torch.Tensor:
        if smart:  # the moments decay for the steps in which the row was not seen
            last = rows[:, 3 * size :]
            skipped = torch.where(last > 0, step - 1 - last, torch.zeros_like(last)).clamp_(min=0)
            rows = rows[:, : 3 * size].clone()
            rows[:, size : 2 * size] *= beta1**skipped
            rows[:, 2 * size :] *= beta2**skipped
        out = ops.one_embedding_adam_update(
            len(rows),  # type: ignore[arg-type]
            rows,
            grad,
            None,
            learning_rate_val=lr,
            weight_decay=group.get("weight_decay", 0.0),
            beta1=beta1,
            beta2=beta2,
            bias_correction1_val=1 - beta1**step,
            bias_correction2_val=1 - beta2**step,
            epsilon=group["eps"],
            do_bias_correction=correct,
            line_size=3 * size,
            embedding_size=size,
        )
        return torch.cat((out, torch.full_like(out[:, :1], step)), 1) if smart else out

    return Rule(2, update, extra=int(smart))


def _adagrad(group: Mapping[str, Any], step: int) -> Rule:
    def update(rows: torch.Tensor, grad: torch.Tensor, size: int, lr: float) -> torch.Tensor:
        return ops.one_embedding_adagrad_update(
            len(rows),  # type: ignore[arg-type]
            rows,
            grad,
            None,
            train_step_val=step,
            learning_rate_val=lr,
            weight_decay=group.get("weight_decay", 0.0),
            lr_decay=group.get("lr_decay", 0.0),
            epsilon=group["eps"],
            line_size=2 * size,
            embedding_size=size,
        )

    return Rule(1, update, group.get("initial_accumulator_value", 0.0))


def _ftrl(group: Mapping[str, Any], step: int) -> Rule:
    def update(rows: torch.Tensor, grad: torch.Tensor, size: int, lr: float) -> torch.Tensor:
        return ops.one_embedding_ftrl_update(
            len(rows),  # type: ignore[arg-type]
            rows,
            grad,
            None,
            learning_rate_val=lr,
            weight_decay=group.get("weight_decay", 0.0),
            lr_power=group["lr_power"],
            lambda1=group["lambda1"],
            lambda2=group["lambda2"],
            beta=group["beta"],
            line_size=3 * size,
            embedding_size=size,
        )

    return Rule(2, update, (group.get("initial_accumulator_value", 0.1), 0.0))


def rule_for(optimizer: torch.optim.Optimizer, group: Mapping[str, Any], step: int) -> Rule:
    """The rule of an optimizer (oneflow.optim's or torch.optim's), by the name of its class."""
    for cls in type(optimizer).__mro__:
        if cls.__name__ in RULES:
            return RULES[cls.__name__](group, step)
    raise NotImplementedError(
        f"one_embedding: {type(optimizer).__name__} cannot update rows; SGD, Adam, AdamW, Adagrad, Ftrl and"
        f" SmartDecayAdam can {difference_hint('one-embedding-optimizers')}"
    )


RULES = {
    "SGD": _sgd,
    "Adam": _adam,
    "AdamW": _adam,
    "Adagrad": _adagrad,
    "Ftrl": _ftrl,
    "SmartDecayAdam": lambda group, step: _adam(group, step, smart=True),
}
