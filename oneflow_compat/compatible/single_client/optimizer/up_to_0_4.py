"""flow.optimizer of OneFlow 0.1 to 0.4, which is `oneflow.optimizer`: Adam corrects the bias in its rate.

OneFlow 0.5, whose API is `oneflow.compatible.single_client`, corrects m and v instead. Weight decay and
epsilon differ between the two.
"""

import sys
from typing import Any

from . import __all__ as __all__
from . import _rules

__path__: list[str] = []  # a package: `import oneflow.optimizer.warmup`


def __getattr__(name: str) -> Any:
    """A name that did not change."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(sys.modules[__name__.rpartition(".")[0]], name)


def _corrected_rate(optimizer: Any, lr: float, step: int) -> tuple[float, ...]:
    """The rate of a step, also for weight decay, and the factors of m and v."""
    if not optimizer.do_bias_correction:
        return lr, lr, 1.0
    t = step + 1
    rate = lr * (1 - optimizer.beta2**t) ** 0.5 / (1 - optimizer.beta1**t)
    return rate, rate, 1.0


class Adam(_rules.Adam):
    """m, v: moving averages of g and g * g; p = p - rate * m / (sqrt(v) + epsilon).

    With `do_bias_correction` the rate is lr * sqrt(1 - beta2 ** t) / (1 - beta1 ** t), else lr.
    """

    numbers = _corrected_rate


class AdamW(_rules.AdamW):
    """Adam with decoupled weight decay: p = p - rate * weight_decay * p besides Adam's change."""

    numbers = _corrected_rate


class LazyAdam(_rules.LazyAdam):
    """Adam with bias correction that changes only the rows whose gradient is not zero."""

    numbers = _corrected_rate
