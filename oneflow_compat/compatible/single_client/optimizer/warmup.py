"""Learning rates of the first steps: `constant` and `linear`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class constant:
    """base_lr * multiplier for the first `steps` steps."""

    def __init__(self, steps: int, multiplier: float) -> None:
        self.steps, self.multiplier = steps, multiplier

    @property
    def warmup_conf(self) -> Any:
        return {"constant_conf": {"warmup_batches": self.steps, "multiplier": self.multiplier}}

    def factor(self, step: int) -> float:
        return self.multiplier


class linear:
    """From base_lr * start_multiplier to base_lr over the first `steps` steps."""

    def __init__(self, steps: int, start_multiplier: float) -> None:
        self.steps, self.start_multiplier = steps, start_multiplier

    @property
    def warmup_conf(self) -> dict[str, Any]:
        return {"linear_conf": {"warmup_batches": self.steps, "start_multiplier": self.start_multiplier}}

    def factor(self, step: int) -> float:
        return self.start_multiplier + (1.0 - self.start_multiplier) * (step / self.steps)
