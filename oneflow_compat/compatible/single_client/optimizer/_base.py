"""The base class of the optimizers of job functions."""

import re
from collections.abc import Sequence
from typing import Any

import torch

from ...._errors import unsupported
from .._jobs import context as _context
from ._schedulers import LrScheduler
from .loss_scale import static_loss_scale


def GetVariablesForCurrentJob() -> Any:
    """Full names of the variables of the job being defined."""
    return list(_context.require_trace("GetVariablesForCurrentJob()").created_by)


def _any_pattern(patterns: str | Sequence[str] | None) -> Any:
    """A compiled expression that finds any of the patterns: a string, or several; None for None."""
    if patterns is None:
        return None
    return re.compile("|".join([patterns] if isinstance(patterns, str) else patterns))


class Optimizer:
    """Base of the optimizers; `minimize(loss)` inside a train job makes each call update the variables.

    `variables` is a list of full variable names, or a function giving one; by default all trainable ones.
    """

    lazy = False
    rates = 1  # how many of `numbers`, from the first, are proportional to the learning rate
    slot_names: tuple[Any, ...] = ()

    def __init__(
        self,
        lr_scheduler: Any,
        loss_scale_factor: Any = None,
        grad_clipping: Any = None,
        train_step_lbn: Any = None,
        loss_scale_policy: Any = None,
        variables: Any = GetVariablesForCurrentJob,
    ) -> None:
        if isinstance(lr_scheduler, (int, float)):
            lr_scheduler = LrScheduler(float(lr_scheduler))
        if lr_scheduler is not None and not hasattr(lr_scheduler, "learning_rate"):
            raise TypeError(
                f"{type(self).__name__}: lr_scheduler must be a schedule of flow.optimizer, such as"
                f" PiecewiseConstantScheduler([], [0.1]), or a number, found {type(lr_scheduler).__name__}"
            )
        if train_step_lbn is not None:
            raise unsupported(
                "train_step_lbn", "legacy-train-step-lbn", "The job counts its own steps; drop the argument."
            )
        if loss_scale_factor is not None and loss_scale_policy is not None:
            raise ValueError("give loss_scale_factor or loss_scale_policy, not both")
        if loss_scale_factor is not None:
            loss_scale_policy = static_loss_scale(loss_scale_factor)
        self.lr_scheduler, self.grad_clipping, self.loss_scale_policy = (
            lr_scheduler,
            grad_clipping,
            loss_scale_policy,
        )
        self.variables = variables
        self.weight_decay, self._includes, self._excludes = 0.0, None, None

    def _set_decay(
        self, weight_decay: float, includes: Sequence[str] | None, excludes: Sequence[str] | None
    ) -> None:
        if includes is not None and excludes is not None:
            raise ValueError("give weight_decay_includes or weight_decay_excludes, not both")
        self.weight_decay = 0.0 if weight_decay is None else float(weight_decay)
        self._includes, self._excludes = _any_pattern(includes), _any_pattern(excludes)

    def decay_of(self, name: str) -> float:
        """Weight decay of one variable: patterns of includes and excludes are searched in its full name."""
        if self._includes is not None:
            return self.weight_decay if self._includes.search(name) else 0.0
        if self._excludes is not None:
            return 0.0 if self._excludes.search(name) else self.weight_decay
        return self.weight_decay

    def variable_names(self, trace: Any) -> list[str]:
        if self.variables is GetVariablesForCurrentJob:
            return [n for n in trace.created_by if trace.trainable[n]]
        return list(self.variables()) if callable(self.variables) else list(self.variables)

    Variables = lambda self: list(self.variables()) if callable(self.variables) else list(self.variables)

    def minimize(self, loss: torch.Tensor | Sequence[torch.Tensor]) -> None:
        """Update the variables by the gradient of `loss` (a blob, or several) in each call of the job.

        A loss of several elements counts as their mean. A predict job trains too, but its dropout and batch
        normalization stay those of a predict job.
        """
        trace = _context.require_trace("minimize(loss)")
        losses = list(loss) if isinstance(loss, (list, tuple)) else [loss]
        trace.losses.extend(x for x in losses if not any(x is y for y in trace.losses))
        trace.optimizers.extend(self.parts())

    def parts(self) -> list[Any]:
        return [self]

    def numbers(self, lr: float, step: int) -> tuple[float, ...]:
        """The values that change from step to step, as floats; the learning rate comes first."""
        return (lr,)

    def make_slots(self, update: Any, variable: Any) -> list[torch.Tensor]:
        return [update.slot(variable, name) for name in self.slot_names]
