"""Loss scaling for low-precision training: fixed, or growing and shrinking with overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .._jobs.session import Variable
from .._jobs.update import outside_capture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class static_loss_scale:
    """Multiply the loss by a fixed factor, and divide the gradients by it."""

    def __init__(self, loss_scale_factor: Any) -> None:
        self.loss_scale_factor = float(loss_scale_factor)

    def SetLossScaleFieldsInTrainConf(self, train_conf: Any) -> None:
        _set(train_conf, "loss_scale_factor", self.loss_scale_factor)

    def current(self, trace: Any) -> Any:
        with outside_capture(trace):
            return torch.tensor(self.loss_scale_factor, device=trace.losses[0].device)

    def check(self, trace: Any, grads: Any, scale: Any) -> None:
        return None

    def advance(self, trace: Any, finite: Any) -> None:
        pass


class dynamic_loss_scale:
    """Start at `initial_loss_scale` and adapt the scale.

    If a gradient is not finite, divide by `multiplier` and skip the update. After `increment_period` good
    steps in a row, multiply.
    """

    def __init__(
        self, initial_loss_scale: Any = 2**30, increment_period: int = 2000, multiplier: float = 2.0
    ) -> None:
        self.initial_loss_scale, self.increment_period, self.multiplier = (
            initial_loss_scale,
            increment_period,
            multiplier,
        )

    def SetLossScaleFieldsInTrainConf(self, train_conf: Any) -> None:
        conf = {
            "initial_loss_scale": float(self.initial_loss_scale),
            "increment_period": self.increment_period,
            "multiplier": self.multiplier,
        }
        _set(train_conf, "dynamic_loss_scale_policy", conf)

    def _state(self, trace: Any) -> list[torch.Tensor]:
        tensors = []
        for name, start in (
            ("System-Train-LossScale", self.initial_loss_scale),
            ("System-Train-GoodStepCounter", 0),
        ):
            full = f"{name}-{trace.job.name}"
            if full not in trace.session.variables:
                with outside_capture(trace):
                    initial = torch.full((), float(start), device=trace.losses[0].device)
                trace.session.variables[full] = Variable(
                    full, initial, initializer={"constant_conf": {"value": float(start)}}
                )
            tensors.append(trace.session.variables[full].tensor)
        return tensors

    def current(self, trace: Any) -> torch.Tensor:
        return self._state(trace)[0].clone()

    def check(self, trace: Any, grads: Sequence[torch.Tensor], scale: torch.Tensor) -> torch.Tensor:
        sums = [torch.isfinite(g).all() for g in grads if g is not None]
        return torch.stack([s.to(sums[0].device) for s in sums]).all()

    def advance(self, trace: Any, finite: torch.Tensor) -> None:
        scale, good = self._state(trace)
        good_now = torch.where(finite, good + 1, torch.zeros_like(good))
        grow = good_now >= self.increment_period
        new = torch.where(
            finite,
            torch.where(grow, scale * self.multiplier, scale),
            torch.clamp(scale / self.multiplier, min=1.0),
        )
        scale.copy_(new)
        good.copy_(torch.where(grow, torch.zeros_like(good), good_now))


def _set(conf: Any, name: str, value: Any) -> None:
    if isinstance(conf, dict):
        conf[name] = value
    else:
        setattr(conf, name, value)
