"""The base class of OneFlow's learning rate schedulers, on torch's.

A OneFlow scheduler is a closed formula: `get_lr(base_lr, step)` gives the rate of one group at one step.
torch's protocol, `get_lr()` for all groups from the present rates, is recognised by the number of
arguments, so user classes of both kinds work.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch.optim.lr_scheduler as _torch

from ..optimizer import AlsoTorchs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch


__all__ = ["LRScheduler"]


@functools.cache
def has_formula(cls: type[LRScheduler]) -> bool:
    """Whether `cls.get_lr` takes (base_lr, step)."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(cls.get_lr).parameters.values())[1:]
    return sum(p.kind in kinds for p in parameters) >= 2 or any(
        p.kind is p.VAR_POSITIONAL for p in parameters
    )


def _also_of_all_groups(formula: Callable[..., float]) -> Callable[..., Any]:
    """`get_lr` that without arguments gives the rates of all groups at the present step, as torch's does."""

    @functools.wraps(formula)
    def get_lr(self: LRScheduler, *args: Any, **kwargs: Any) -> Any:
        return (
            formula(self, *args, **kwargs)
            if args or kwargs
            else self.rates_at(self.base_lrs, self.last_epoch)
        )

    return get_lr


class LRScheduler(_torch.LRScheduler, metaclass=AlsoTorchs):
    """Base class: `LRScheduler(optimizer, last_step=-1, verbose=False)`; `last_epoch` is the same as
    `last_step`.

    `verbose=True` prints a line per group at every step. `step(epoch)` sets the step, as in torch.
    After a call of a graph that owns the schedule, step() without an optimizer step in between does nothing.
    """

    _stands_for = _torch.LRScheduler

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        self.verbose = bool(verbose) and verbose != "deprecated"  # the default of older torch
        _torch.LRScheduler.__init__(self, optimizer, last_step if last_epoch is None else last_epoch)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "get_lr" in vars(cls) and has_formula(cls):
            cls.get_lr = _also_of_all_groups(cls.get_lr)

    @property
    def last_step(self) -> int:
        return self.last_epoch

    @last_step.setter
    def last_step(self, value: int) -> None:
        self.last_epoch = value

    def get_lr(self, base_lr: float, step: int) -> float:
        """The rate of a group whose initial rate is `base_lr`, at `step`."""
        raise NotImplementedError(f"{type(self).__name__} must define get_lr(self, base_lr, step)")

    def step(self, epoch: int | None = None) -> None:
        graph_did, self.optimizer._schedule_of_graph = (
            getattr(self.optimizer, "_schedule_of_graph", None),
            None,
        )
        if graph_did is self and epoch is None and not self.optimizer._opt_called:
            return  # the graph has stepped this already; the program steps only for display
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self.update_lrs(self._rates())

    @property
    def closed(self) -> bool:
        """Whether `rates_at` can compute the rates of any step. False for a subclass with torch's
        get_lr(self).
        """
        return has_formula(type(self))

    def rates_at(self, base_lrs: Sequence[float], step: int) -> list[float]:
        """The rates of all groups at `step`, from their initial rates, without stepping."""
        return [self.get_lr(base_lr, step) for base_lr in base_lrs]

    def _rates(self) -> list[float]:
        if self.closed:
            return self.rates_at(self.base_lrs, self.last_epoch)
        self._get_lr_called_within_step = True  # torch's own get_lr() warns without it
        try:
            formula: Any = self.get_lr  # torch's, without arguments
            return formula()
        finally:
            self._get_lr_called_within_step = False

    def update_lrs(self, rates: Sequence[float]) -> None:
        groups = self.optimizer.param_groups
        if len(rates) != len(groups):
            raise ValueError(
                f"{type(self).__name__} computed {len(rates)} rates for {len(groups)} parameter groups"
            )
        for i, (group, rate) in enumerate(zip(groups, rates)):
            if hasattr(group["lr"], "fill_"):
                group["lr"].fill_(rate)
            else:
                group["lr"] = float(rate) if hasattr(rate, "item") else rate
            if self.verbose:
                self.print_lr(i, rate)
        self._last_lr = [g["lr"].clone() if hasattr(g["lr"], "clone") else g["lr"] for g in groups]

    def print_lr(self, group: int, rate: float) -> None:
        print(
            f"Last step {self.last_step} of {type(self)} adjusting learning rate of param_groups[{group}] to"
            f" {float(rate):.5f}"
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; the step is there under both names, `last_epoch` and `last_step`."""
        state = {key: value for key, value in self.__dict__.items() if key != "optimizer"}
        state["last_step"] = self.last_epoch
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        last = state.pop("last_step", None)
        if "last_epoch" not in state and last is not None:
            state["last_epoch"] = last
            state.setdefault("_step_count", last + 1)
        self.__dict__.update(state)
