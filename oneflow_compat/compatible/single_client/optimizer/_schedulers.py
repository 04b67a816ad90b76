"""Learning rate as a function of the step (0 for the first call). Formulas of OneFlow's job functions.

While a warmup lasts, its value replaces the schedule's; the schedule counts steps from 0 regardless.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from . import warmup as warmups


class LrScheduler:
    """Base: a learning rate that stays `base_lr`, with an optional warmup."""

    def __init__(self, base_lr: float, warmup: Any = None) -> None:
        self.base_lr, self.warmup = base_lr, warmup

    def learning_rate(self, step: int) -> float:
        if self.warmup is not None and step < self.warmup.steps:
            return self.base_lr * self.warmup.factor(step)
        return self.decayed(step)

    def decayed(self, step: int) -> float:
        return self.base_lr

    @property
    def warmup_conf(self) -> dict[str, Any] | None:
        return None if self.warmup is None else self.warmup.warmup_conf

    @property
    def learning_rate_decay_conf(self) -> dict[str, Any] | None:
        """The settings as a dict {"<kind>_conf": {...}}, None for a constant rate."""
        own = {k: v for k, v in vars(self).items() if k not in ("base_lr", "warmup")}
        return {self.conf_name: own} if own else None

    conf_name = "constant_conf"


def _positive_steps(scheduler: LrScheduler, steps: int) -> int:
    """Return the steps of a decay, which the formulas divide by."""
    if isinstance(steps, (bool, str)) or not steps > 0:
        raise ValueError(
            f"{type(scheduler).__name__}: steps must be a number above 0, found {steps!r}; pass how many"
            " calls of the job the learning rate decays over"
        )
    return steps


class CosineScheduler(LrScheduler):
    """base_lr * ((1 - alpha) * (1 + cos(pi * step / steps)) / 2 + alpha), constant after `steps`."""

    conf_name = "cosine_conf"

    def __init__(self, base_lr: float, steps: int, alpha: float = 0.0, warmup: Any = None) -> None:
        super().__init__(base_lr, warmup)
        self.steps, self.alpha = _positive_steps(self, steps), alpha

    def decayed(self, step: int) -> float:
        cosine = 0.5 * (1 + math.cos(math.pi * min(step, self.steps) / self.steps))
        return self.base_lr * ((1 - self.alpha) * cosine + self.alpha)


class PiecewiseConstantScheduler(LrScheduler):
    """values[i] up to and including step boundaries[i], values[-1] after the last boundary."""

    conf_name = "piecewise_constant_conf"

    def __init__(self, boundaries: Sequence[int], values: Sequence[float], warmup: Any = None) -> None:
        if len(boundaries) + 1 != len(values):
            raise ValueError(
                f"PiecewiseConstantScheduler: {len(boundaries)} boundaries need {len(boundaries) + 1} values,"
                f" found {len(values)}"
            )
        super().__init__(values[0], warmup)
        self.boundaries, self.values = list(boundaries), list(values)

    def decayed(self, step: int) -> float:
        return self.values[_segment(self.boundaries, step)]


class PiecewiseScalingScheduler(LrScheduler):
    """base_lr times the product of the scales of all boundaries already passed."""

    conf_name = "piecewise_scaling_conf"

    def __init__(
        self, base_lr: float, boundaries: Sequence[int], scale: float | Sequence[float], warmup: Any = None
    ) -> None:
        super().__init__(base_lr, warmup)
        scales = list(scale) if isinstance(scale, (list, tuple)) else [scale] * len(boundaries)
        if len(scales) != len(boundaries):
            raise ValueError(
                f"PiecewiseScalingScheduler: {len(boundaries)} boundaries need as many scales, found"
                f" {len(scales)}"
            )
        self.boundaries, self.scales = list(boundaries), [1, *accumulate(scales, lambda a, b: a * b)]

    def decayed(self, step: int) -> float:
        return self.base_lr * self.scales[_segment(self.boundaries, step)]


def _segment(boundaries: Sequence[int], step: int) -> int:
    for i, boundary in enumerate(boundaries):
        if step <= boundary:
            return i
    return len(boundaries)


class PolynomialScheduler(LrScheduler):
    """(base_lr - end) * (1 - step / steps) ** power + end.

    With `cycle` the span grows by `steps` each time a step passes its end.
    """

    conf_name = "polynomial_conf"

    def __init__(
        self,
        base_lr: float,
        steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        warmup: Any = None,
    ) -> None:
        super().__init__(base_lr, warmup)
        self.steps = _positive_steps(self, steps)
        self.end_learning_rate, self.power, self.cycle = end_learning_rate, power, cycle

    def decayed(self, step: int) -> float:
        span = self.steps
        if self.cycle:
            span *= max(1, math.ceil(step / self.steps))
        else:
            step = min(step, span)
        return (self.base_lr - self.end_learning_rate) * (
            1 - step / span
        ) ** self.power + self.end_learning_rate


class LinearCosineScheduler(LrScheduler):
    """base_lr * ((alpha + 1 - p) * (1 + cos(2 pi num_periods p)) / 2 + beta), p = step / steps, at most 1."""

    conf_name = "linear_cosine_conf"

    def __init__(
        self,
        base_lr: float,
        steps: int,
        num_periods: float = 0.5,
        alpha: float = 0.0,
        beta: float = 0.001,
        warmup: Any = None,
    ) -> None:
        super().__init__(base_lr, warmup)
        self.steps = _positive_steps(self, steps)
        self.num_periods, self.alpha, self.beta = num_periods, alpha, beta

    def decayed(self, step: int) -> float:
        p = min(step, self.steps) / self.steps
        cosine = 0.5 * (1 + math.cos(2 * math.pi * self.num_periods * p))
        return self.base_lr * ((self.alpha + 1 - p) * cosine + self.beta)


class _Decay(LrScheduler):
    def __init__(
        self, base_lr: float, steps: int, decay_rate: float, staircase: bool = False, warmup: Any = None
    ) -> None:
        super().__init__(base_lr, warmup)
        self.steps = _positive_steps(self, steps)
        self.decay_rate, self.staircase = decay_rate, staircase

    def progress(self, step: int) -> float:
        p = step / self.steps
        return math.floor(p) if self.staircase else p


class ExponentialScheduler(_Decay):
    """base_lr * decay_rate ** (step / steps)."""

    conf_name = "exponential_conf"

    def decayed(self, step: int) -> float:
        return self.base_lr * self.decay_rate ** self.progress(step)


class InverseTimeScheduler(_Decay):
    """base_lr / (1 + decay_rate * step / steps)."""

    conf_name = "inverse_time_conf"

    def decayed(self, step: int) -> float:
        return self.base_lr / (1 + self.decay_rate * self.progress(step))


class NaturalExpScheduler(_Decay):
    """base_lr * exp(-decay_rate * step / steps)."""

    conf_name = "natural_exp_conf"

    def decayed(self, step: int) -> float:
        return self.base_lr * math.exp(-self.decay_rate * self.progress(step))


class CustomScheduler(LrScheduler):
    """The learning rate is the one-element blob named `lbn` (blob.logical_blob_name) of the same job."""

    def __init__(self, lbn: str) -> None:
        super().__init__(1.0)
        self.lbn = lbn

    @property
    def learning_rate_decay_conf(self) -> None:
        return None


def from_conf(base_lr: Any, decay: Any = None, warmup: Any = None) -> Any:
    """The schedule of an old-style conf: {"cosine_conf": {...}}, {"linear_conf": {...}}."""
    start = None
    if warmup:
        ((conf_name, conf),) = warmup.items()
        conf = dict(conf)
        steps = conf.pop("warmup_batches")
        start = {"constant_conf": warmups.constant, "linear_conf": warmups.linear}[conf_name](
            steps, *conf.values()
        )
    if not decay:
        return LrScheduler(base_lr, start)
    ((conf_name, conf),) = decay.items()
    conf = dict(conf)
    if "decay_batches" in conf:
        conf["steps"] = conf.pop("decay_batches")
    if conf_name == "piecewise_constant_conf":
        return PiecewiseConstantScheduler(conf["boundaries"], conf["values"], start)
    if conf_name == "piecewise_scaling_conf":
        schedule = PiecewiseScalingScheduler(
            base_lr, conf["boundaries"], [1] * len(conf["boundaries"]), start
        )
        schedule.scales = list(conf["scales"])
        return schedule
    for cls in (
        CosineScheduler,
        PolynomialScheduler,
        LinearCosineScheduler,
        ExponentialScheduler,
        InverseTimeScheduler,
        NaturalExpScheduler,
    ):
        if cls.conf_name == conf_name:
            return cls(base_lr, warmup=start, **conf)
    raise ValueError(f"learning_rate_decay: unknown kind {conf_name!r}")
