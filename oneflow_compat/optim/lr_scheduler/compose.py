"""Schedulers made of schedulers: SequentialLR, WarmUpLR, ChainedScheduler.

Members with OneFlow's closed formula are combined as formulas. As soon as one member is torch's (OneCycleLR,
a user class with `get_lr(self)`), the members are stepped one after the other, as torch does.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Literal

import torch.optim.lr_scheduler as _torch

from .base import LRScheduler
from .formulas import ConstantLR, LinearLR

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


MEMBERS = ("schedulers", "_schedulers")


def _same_optimizer(name: str, schedulers: Sequence[Any], optimizer: torch.optim.Optimizer) -> None:
    for i, scheduler in enumerate(schedulers):
        if getattr(scheduler, "optimizer", None) is not optimizer:
            raise ValueError(
                f"{name}: schedulers[{i}] ({type(scheduler).__name__}) belongs to another optimizer than the"
                " rest"
            )


class _Composed(LRScheduler):
    """Base of composed schedulers; the members' state is saved with theirs."""

    schedulers: list[Any]

    @property
    def closed(self) -> bool:
        return all(getattr(s, "closed", False) for s in self.schedulers)

    def get_lr(self, base_lr: float, step: int) -> float:
        if not self.closed:
            odd = next(s for s in self.schedulers if not getattr(s, "closed", False))
            raise TypeError(
                f"{type(self).__name__}.get_lr(base_lr, step): {type(odd).__name__} is torch's and has no"
                " such formula"
            )
        return self.rates_at([base_lr], step)[0]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all schedulers as a dict."""
        state = {k: v for k, v in LRScheduler.state_dict(self).items() if k not in MEMBERS}
        state["schedulers"] = [s.state_dict() for s in self.schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        state = dict(state_dict)
        members = [state.pop(key) for key in MEMBERS if key in state]
        LRScheduler.load_state_dict(self, state)
        for scheduler, saved in zip(self.schedulers, members[0] if members else []):
            scheduler.load_state_dict(saved)

    @property
    def _schedulers(self) -> list[Any]:
        return self.schedulers


class SequentialLR(_Composed, _torch.SequentialLR):
    """schedulers[i] between milestones[i-1] and milestones[i].

    A later scheduler sees the global step; with `interval_rescaling` (one bool, or one per milestone) it
    restarts at 0 there, which is what torch always does. An int in that place is torch's `last_epoch`.

    ValueError unless the lists have matching lengths.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedulers: Sequence[Any],
        milestones: Sequence[int],
        interval_rescaling: bool | Sequence[bool] = False,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        if isinstance(interval_rescaling, int) and not isinstance(interval_rescaling, bool):
            interval_rescaling, last_epoch = False, interval_rescaling
        if not schedulers:
            raise ValueError("SequentialLR: needs a non-empty list of schedulers")
        if len(schedulers) != len(milestones) + 1:
            raise ValueError(
                f"SequentialLR: {len(schedulers)} schedulers need {max(len(schedulers) - 1, 0)} milestones,"
                f" got {len(milestones)}"
            )
        _same_optimizer("SequentialLR", schedulers, optimizer)
        if isinstance(interval_rescaling, bool):
            interval_rescaling = [interval_rescaling] * len(milestones)
        if len(interval_rescaling) != len(milestones):
            raise ValueError(
                f"SequentialLR: {len(interval_rescaling)} values of interval_rescaling for {len(milestones)}"
                " milestones"
            )
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        self.interval_rescaling = list(interval_rescaling)
        if not self.closed:
            self._start_over()
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    def _start_over(self) -> None:
        """torch's members have already moved the rate when they were made: undo that, then the
        first begins.
        """
        optimizer = self.schedulers[0].optimizer
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in self.schedulers:
            scheduler.last_epoch -= 1

    def _place(self, step: int) -> tuple[int, int]:
        """(which scheduler, the step it sees)"""
        i = bisect_right(self.milestones, step)
        return i, step - self.milestones[i - 1] if i and self.interval_rescaling[i - 1] else step

    def rates_at(self, base_lrs: Sequence[float], step: int) -> list[float]:
        i, seen = self._place(step)
        return self.schedulers[i].rates_at(base_lrs, seen)

    def _rates(self) -> list[float]:
        i, seen = self._place(self.last_epoch)
        member = self.schedulers[i]
        if not self.closed:
            if i and self.milestones[i - 1] == self.last_epoch:
                getattr(member, "_update_lr", member.step)(0)
            else:
                member.step()
            return [g["lr"] for g in self.optimizer.param_groups]
        rates = member.rates_at(self.base_lrs, seen)
        member.last_epoch, member._last_lr = seen, list(rates)
        return rates


class WarmUpLR(SequentialLR):
    """A warm-up of `warmup_iters` steps before a scheduler, or before the optimizer's constant rate.

    "linear" rises from warmup_factor * base_lr to the rate the scheduler has when it takes over, "constant"
    stays at warmup_factor * base_lr. With `warmup_prefix` the scheduler starts at its step 0 after the
    warm-up, else it is `warmup_iters` steps old by then.

    ValueError for another method, a factor outside 0..1, negative warmup_iters, or 0 of them without a
    scheduler.
    """

    def __init__(
        self,
        scheduler_or_optimizer: Any,
        warmup_factor: float = 1.0 / 3,
        warmup_iters: int = 5,
        warmup_method: Literal["linear", "constant"] = "linear",
        warmup_prefix: bool = False,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        if warmup_method not in ("linear", "constant"):
            raise ValueError(f"WarmUpLR: warmup_method={warmup_method!r} must be 'linear' or 'constant'")
        if not 0 <= warmup_factor <= 1:
            raise ValueError(f"WarmUpLR: warmup_factor={warmup_factor} must be in [0, 1]")
        if warmup_iters < 0:
            raise ValueError(f"WarmUpLR: warmup_iters={warmup_iters} must not be negative")
        scheduler = scheduler_or_optimizer if isinstance(scheduler_or_optimizer, _torch.LRScheduler) else None
        optimizer = scheduler.optimizer if scheduler is not None else scheduler_or_optimizer
        if scheduler is None and warmup_iters == 0:
            raise ValueError("WarmUpLR: warmup_iters=0 needs a scheduler, not an optimizer")
        self.warmup_factor, self.warmup_iters = warmup_factor, warmup_iters
        self.warmup_method, self.warmup_prefix = warmup_method, warmup_prefix
        self.verbose = verbose
        if scheduler is None or warmup_iters > 0:
            warmup = self._warmup(optimizer, scheduler)
            members = [warmup] if scheduler is None else [warmup, scheduler]
        else:
            members = [scheduler]
        super().__init__(
            optimizer,
            members,
            [warmup_iters] * (len(members) - 1),
            bool(warmup_prefix),
            last_step,
            verbose,
            last_epoch=last_epoch,
        )

    def _warmup(self, optimizer: torch.optim.Optimizer, scheduler: Any) -> LRScheduler:
        if self.warmup_method == "constant":
            return ConstantLR(optimizer, self.warmup_factor, self.warmup_iters, verbose=self.verbose)
        return LinearLR(
            optimizer,
            self.warmup_factor,
            self._end_factor(scheduler),
            self.warmup_iters,
            verbose=self.verbose,
        )

    def _end_factor(self, scheduler: Any) -> float:
        """The rate at which the scheduler takes over, over base_lr."""
        if scheduler is None or self.warmup_prefix:
            return 1.0
        if not getattr(scheduler, "closed", False):
            raise TypeError(
                f"WarmUpLR: {type(scheduler).__name__} is torch's and cannot tell its rate after the "
                "warm-up; use warmup_prefix=True or warmup_method='constant'"
            )
        bases = scheduler.base_lrs
        factors = [
            rate / lr if lr else 1.0 for lr, rate in zip(bases, scheduler.rates_at(bases, self.warmup_iters))
        ]
        if max(factors) - min(factors) > 1e-12:
            raise ValueError(
                f"WarmUpLR: the parameter groups would need different warm-ups (end factors {factors}); "
                "use warmup_prefix=True or one scheduler per optimizer"
            )
        return factors[0]


WarmupLR = WarmUpLR


class ChainedScheduler(_Composed, _torch.ChainedScheduler):  # type: ignore[misc]
    """Every scheduler in turn on the rate the one before it gives.

    ValueError for an empty list.
    """

    def __init__(self, schedulers: Sequence[Any], optimizer: torch.optim.Optimizer | None = None) -> None:
        if not isinstance(schedulers, (list, tuple)) or not schedulers:
            raise ValueError(f"ChainedScheduler: needs a non-empty list of schedulers, got {schedulers!r}")
        optimizer = optimizer or schedulers[0].optimizer
        _same_optimizer("ChainedScheduler", schedulers, optimizer)
        self.schedulers = list(schedulers)
        if self.closed:
            LRScheduler.__init__(self, optimizer)
            return
        self.optimizer, self.verbose = optimizer, False
        self.base_lrs = list(getattr(schedulers[0], "base_lrs", [g["lr"] for g in optimizer.param_groups]))
        self.last_epoch, self._step_count = schedulers[0].last_epoch, 1
        for i, (group, rate) in enumerate(zip(optimizer.param_groups, self.base_lrs)):
            for scheduler in self.schedulers:
                rate = rate * _first_factor(scheduler, i)
            group["lr"] = rate
        self._last_lr = [g["lr"] for g in optimizer.param_groups]

    def rates_at(self, base_lrs: Sequence[float], step: int) -> list[float]:
        rates = list(base_lrs)
        for scheduler in self.schedulers:
            rates = scheduler.rates_at(rates, step)
        return rates

    def _rates(self) -> list[float]:
        if not self.closed:
            for scheduler in self.schedulers:
                _step_on_top(scheduler)
            return [g["lr"] for g in self.optimizer.param_groups]
        rates: list[Any] = self.base_lrs
        for scheduler in self.schedulers:
            rates = scheduler.rates_at(rates, self.last_epoch)
            scheduler.last_epoch, scheduler._last_lr = self.last_epoch, list(rates)
        return rates


def _first_factor(scheduler: Any, i: int) -> float:
    """Return the factor of the rate of group i before any step; 1 if torch's scheduler cannot tell."""
    if getattr(scheduler, "closed", False):
        rates = scheduler.rates_at(scheduler.base_lrs, scheduler.last_epoch)
    elif hasattr(scheduler, "_get_closed_form_lr"):
        rates = scheduler._get_closed_form_lr()
    else:
        return 1.0
    return rates[i] / scheduler.base_lrs[i] if scheduler.base_lrs[i] else 1.0


def _step_on_top(scheduler: Any) -> None:
    """Step one member of a mixed chain: torch's changes the present rate, a formula's change is applied to
    it.
    """
    if not getattr(scheduler, "closed", False):
        scheduler.step()
        return
    before = scheduler.rates_at(scheduler.base_lrs, scheduler.last_epoch)
    scheduler.last_epoch += 1
    after = scheduler.rates_at(scheduler.base_lrs, scheduler.last_epoch)
    for group, old, new in zip(scheduler.optimizer.param_groups, before, after):
        group["lr"] = group["lr"] * (new / old) if old else new
    scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]
