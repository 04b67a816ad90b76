"""oneflow.optim.lr_scheduler.ReduceLROnPlateau."""

from __future__ import annotations

import torch.optim.lr_scheduler as _torch

RENAMES = {"num_bad_steps": "num_bad_epochs", "last_step": "last_epoch"}


class ReduceLROnPlateau(_torch.ReduceLROnPlateau):
    """torch's, with `verbose` as the last positional argument and OneFlow's attribute names
    besides torch's.
    """

    def __init__(
        self,
        optimizer,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=0.0001,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0,
        eps=1e-08,
        verbose=False,
    ):
        super().__init__(optimizer, mode, factor, patience, threshold, threshold_mode, cooldown, min_lr, eps)
        self.verbose = verbose

    @property
    def last_step(self):
        return self.last_epoch

    @last_step.setter
    def last_step(self, value):
        self.last_epoch = value

    @property
    def num_bad_steps(self):
        return self.num_bad_epochs

    @num_bad_steps.setter
    def num_bad_steps(self, value):
        self.num_bad_epochs = value

    def is_better(self, a, best) -> bool:
        """Whether the metric `a` improves on `best` by more than the threshold.

        Both are numbers or tensors of one element.
        """
        margin = best * self.threshold if self.threshold_mode == "rel" else self.threshold
        return a < best - margin if self.mode == "min" else a > best + margin

    def step(self, metrics, epoch=None):
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

    def state_dict(self) -> dict:
        """torch's state; the step and the counter of bad steps are there under OneFlow's names too."""
        state = super().state_dict()
        state.update({ours: getattr(self, theirs) for ours, theirs in RENAMES.items()})
        return state

    def load_state_dict(self, state_dict: dict) -> None:
        """Restore the state that `state_dict` returned."""
        state = {}
        for key, value in state_dict.items():
            key = RENAMES.get(key, key)
            state.setdefault(key, value)
        super().load_state_dict(state)
