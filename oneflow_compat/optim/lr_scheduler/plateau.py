"""oneflow.optim.lr_scheduler.ReduceLROnPlateau."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch.optim.lr_scheduler as _torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


RENAMES = {"num_bad_steps": "num_bad_epochs", "last_step": "last_epoch"}


class ReduceLROnPlateau(_torch.ReduceLROnPlateau):
    """torch's, with `verbose` as the last positional argument and OneFlow's attribute names
    besides torch's.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 0.0001,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0,
        eps: float = 1e-08,
        verbose: bool = False,
    ) -> None:
        super().__init__(optimizer, mode, factor, patience, threshold, threshold_mode, cooldown, min_lr, eps)
        self.verbose = verbose

    @property
    def last_step(self) -> int:
        return self.last_epoch

    @last_step.setter
    def last_step(self, value: int) -> None:
        self.last_epoch = value

    @property
    def num_bad_steps(self) -> int:
        return self.num_bad_epochs

    @num_bad_steps.setter
    def num_bad_steps(self, value: int) -> None:
        self.num_bad_epochs = value

    def is_better(self, a: Any, best: Any) -> bool:
        """Whether the metric `a` improves on `best` by more than the threshold.

        Both are numbers or tensors of one element.
        """
        margin = best * self.threshold if self.threshold_mode == "rel" else self.threshold
        return a < best - margin if self.mode == "min" else a > best + margin

    def step(self, metrics: Any, epoch: int | None = None) -> None:
        """Count one evaluation, and reduce the rate if the metric has not improved for `patience` of
        them."""
        before = [float(group["lr"]) for group in self.optimizer.param_groups]
        super().step(metrics, epoch)
        if not self.verbose:
            return
        for i, (group, old) in enumerate(zip(self.optimizer.param_groups, before)):
            if float(group["lr"]) != old:
                print(
                    f"Epoch {self.last_step:5}: reducing learning rate of group {i} to"
                    f" {float(group['lr']):.4e}."
                )

    def state_dict(self) -> dict[str, Any]:
        """torch's state; the step and the counter of bad steps are there under OneFlow's names too."""
        state = super().state_dict()
        state.update({ours: getattr(self, theirs) for ours, theirs in RENAMES.items()})
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        state: dict[str, Any] = {}
        for key, value in state_dict.items():
            key = RENAMES.get(key, key)
            state.setdefault(key, value)
        super().load_state_dict(state)
