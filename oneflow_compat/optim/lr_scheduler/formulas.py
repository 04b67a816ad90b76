"""The schedulers that are one formula of the step."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import torch.optim.lr_scheduler as _torch

from ..._errors import RefusedValue
from .base import LRScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch


def _need(condition: object, message: str) -> None:
    if not condition:
        raise RefusedValue(message)


class StepLR(LRScheduler, _torch.StepLR):
    """base_lr * gamma ** (step // step_size)."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        step_size: int,
        gamma: float = 0.1,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        _need(step_size > 0, f"StepLR: step_size={step_size} must be positive")
        self.step_size, self.gamma = step_size, gamma
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    def get_lr(self, base_lr: float, step: int) -> float:
        """Return the learning rate of a base rate at a step."""
        return base_lr * self.gamma ** (step // self.step_size)


class MultiStepLR(LRScheduler, _torch.MultiStepLR):
    """base_lr * gamma ** (number of milestones reached). Milestones may come unsorted."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        self.milestones: Any = sorted(milestones)  # torch has a Counter
        self.gamma = gamma
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    def get_lr(self, base_lr: float, step: int) -> float:
        """Return the learning rate of a base rate at a step."""
        return base_lr * self.gamma ** bisect_right(self.milestones, step)


class ExponentialLR(LRScheduler, _torch.ExponentialLR):
    """base_lr * gamma ** step."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        gamma: float,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        self.gamma = gamma
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    def get_lr(self, base_lr: float, step: int) -> float:
        """Return the learning rate of a base rate at a step."""
        return base_lr * self.gamma**step


class ConstantLR(LRScheduler, _torch.ConstantLR):
    """base_lr * factor before total_iters, base_lr from there on."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        _need(0 <= factor <= 1, f"ConstantLR: factor={factor} must be in [0, 1]")
        self.factor, self.total_iters = factor, total_iters
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    def get_lr(self, base_lr: float, step: int) -> float:
        """Return the learning rate of a base rate at a step."""
        return base_lr * self.factor if step < self.total_iters else base_lr


class LinearLR(LRScheduler, _torch.LinearLR):
    """The factor moves linearly from start_factor to end_factor in total_iters steps; a start of 0 is
    allowed.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        _need(0 <= start_factor <= 1, f"LinearLR: start_factor={start_factor} must be in [0, 1]")
        _need(0 <= end_factor <= 1, f"LinearLR: end_factor={end_factor} must be in [0, 1]")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    def get_lr(self, base_lr: float, step: int) -> float:
        """Return the learning rate of a base rate at a step."""
        if step >= self.total_iters:
            return base_lr * self.end_factor
        return base_lr * (
            self.start_factor + (self.end_factor - self.start_factor) * (step / self.total_iters)
        )


class CosineAnnealingLR(LRScheduler, _torch.CosineAnnealingLR):
    """A cosine from base_lr to eta_min with period 2 * T_max (it rises again after T_max)."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        T_max: int,
        eta_min: float = 0.0,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    def get_lr(self, base_lr: float, step: int) -> float:
        """Return the learning rate of a base rate at a step."""
        return self.eta_min + (base_lr - self.eta_min) * (1 + math.cos(math.pi * step / self.T_max)) / 2


class CosineDecayLR(LRScheduler):
    """Half a cosine from base_lr to alpha * base_lr in decay_steps, constant after."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        decay_steps: int,
        alpha: float = 0.0,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        _need(decay_steps > 0, f"CosineDecayLR: decay_steps={decay_steps} must be positive")
        self.decay_steps, self.alpha = decay_steps, alpha
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    def get_lr(self, base_lr: float, step: int) -> float:
        """Return the learning rate of a base rate at a step."""
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.decay_steps)) if step < self.decay_steps else 0.0
        return base_lr * ((1 - self.alpha) * cosine + self.alpha)


class PolynomialLR(LRScheduler, _torch.PolynomialLR):
    """(base_lr - end) * (1 - step / decay_batch) ** power + end, with `cycle` restarting on longer periods.

    `steps=` is OneFlow's older name of decay_batch; torch's keyword form `PolynomialLR(opt, total_iters=5,
    power=1.0)` decays to 0 as torch does.

    TypeError for two of decay_batch, steps and total_iters.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        decay_batch: int | None = None,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        last_step: int = -1,
        verbose: bool = False,
        *,
        steps: int | None = None,
        total_iters: int | None = None,
        last_epoch: int | None = None,
    ) -> None:
        if steps is not None:
            if decay_batch is not None:
                raise TypeError("PolynomialLR: give decay_batch or its older name steps, not both")
            decay_batch = steps
        if decay_batch is None:
            decay_batch, end_learning_rate = (5 if total_iters is None else total_iters), 0.0
        elif total_iters is not None:
            raise TypeError("PolynomialLR: give decay_batch (OneFlow) or total_iters (torch), not both")
        _need(decay_batch > 0, f"PolynomialLR: decay_batch={decay_batch} must be positive")
        self.max_decay_steps, self.end_learning_rate, self.power, self.cycle = (
            decay_batch,
            end_learning_rate,
            power,
            cycle,
        )
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    @property
    def total_iters(self) -> int:
        return self.max_decay_steps

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        if "total_iters" in state:
            state.update(max_decay_steps=state.pop("total_iters"), end_learning_rate=0.0, cycle=False)
        LRScheduler.load_state_dict(self, state)

    def get_lr(self, base_lr: float, step: int) -> float:
        """Return the learning rate of a base rate at a step."""
        decay = self.max_decay_steps
        if self.cycle:
            step = max(step, 1)
            decay = decay * math.ceil(step / decay)
        step = min(step, decay)
        return (base_lr - self.end_learning_rate) * (1 - step / decay) ** self.power + self.end_learning_rate


class CosineAnnealingWarmRestarts(LRScheduler, _torch.CosineAnnealingWarmRestarts):
    """Cosines of T_0, T_0*T_mult, ... steps; each restart multiplies base_lr by decay_rate.

    After `restart_limit` cycles (if positive) the rate stays at eta_min. `step(epoch)` may be fractional.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        decay_rate: float = 1.0,
        restart_limit: int = 0,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        _need(
            T_0 > 0 and isinstance(T_0, int),
            f"CosineAnnealingWarmRestarts: T_0={T_0!r} must be a positive int",
        )
        _need(
            T_mult >= 1 and isinstance(T_mult, int),
            f"CosineAnnealingWarmRestarts: T_mult={T_mult!r} must be an int of at least 1",
        )
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        self.decay_rate, self.restart_limit = decay_rate, restart_limit
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    def _cycle(self, step: float) -> tuple[int, float, int]:
        """(number of finished cycles, step within the cycle, length of the cycle)"""
        if self.T_mult == 1:
            n = int(step // self.T_0)
            return n, step - n * self.T_0, self.T_0
        n, start, length = 0, 0, self.T_0
        while step >= start + length:
            n, start, length = n + 1, start + length, length * self.T_mult
        return n, step - start, length

    @property
    def T_cur(self) -> float:
        return self._cycle(self.last_epoch)[1]

    @property
    def T_i(self) -> int:
        return self._cycle(self.last_epoch)[2]

    def step(self, epoch: float | None = None) -> None:
        _need(epoch is None or epoch >= 0, f"step(epoch): epoch={epoch} must not be negative")
        LRScheduler.step(self, epoch)

    def get_lr(self, base_lr: float, step: int) -> float:
        """Return the learning rate of a base rate at a step."""
        n, current, length = self._cycle(step)
        if 0 < self.restart_limit <= n:
            return self.eta_min
        base_lr = base_lr * self.decay_rate**n
        return self.eta_min + (base_lr - self.eta_min) * (1 + math.cos(math.pi * current / length)) / 2


class _Lambdas:
    """One function per group; functions are not saved, callable objects' attributes are (as in torch)."""

    def _set_lambdas(
        self,
        optimizer: torch.optim.Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
    ) -> None:
        count = len(optimizer.param_groups)
        functions = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        _need(
            len(functions) == count,
            f"{type(self).__name__}: {len(functions)} functions for {count} parameter groups",
        )
        self.lr_lambdas: list[Any] = functions

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a dict; functions are left out, callable objects keep their attributes."""
        state = LRScheduler.state_dict(self)
        state["lr_lambdas"] = [
            None if hasattr(f, "__code__") else dict(getattr(f, "__dict__", {})) for f in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        state = dict(state_dict)
        saved = state.pop("lr_lambdas", [])
        LRScheduler.load_state_dict(self, state)
        for function, attributes in zip(self.lr_lambdas, saved):
            if attributes is not None:
                function.__dict__.update(attributes)


class LambdaLR(_Lambdas, LRScheduler, _torch.LambdaLR):
    """base_lr * lr_lambda(step); a list has one function per parameter group."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        self._set_lambdas(optimizer, lr_lambda)
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    def rates_at(self, base_lrs: Sequence[float], step: int) -> list[float]:
        return [base_lr * f(step) for base_lr, f in zip(base_lrs, self.lr_lambdas)]

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.lr_lambdas[0](step)


class MultiplicativeLR(_Lambdas, LRScheduler, _torch.MultiplicativeLR):
    """The group's present rate times lr_lambda(step), from step 1 on."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        self._set_lambdas(optimizer, lr_lambda)
        LRScheduler.__init__(self, optimizer, last_step, verbose, last_epoch=last_epoch)

    def _rates(self) -> list[float]:
        groups = self.optimizer.param_groups
        return [
            g["lr"] * f(self.last_epoch) if self.last_epoch > 0 else g["lr"]
            for g, f in zip(groups, self.lr_lambdas)
        ]

    def rates_at(self, base_lrs: Sequence[float], step: int) -> list[float]:
        return [lr * math.prod(f(i) for i in range(1, step + 1)) for lr, f in zip(base_lrs, self.lr_lambdas)]

    def get_lr(self, base_lr: float, step: int) -> float:
        return self.rates_at([base_lr], step)[0]
