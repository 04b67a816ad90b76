"""oneflow.optim.Adagrad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .._bind import fall_through as _ft
from .optimizer import Optimizer, flag

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT


__all__ = ["Adagrad"]


class Adagrad(Optimizer, torch.optim.Adagrad):
    """Adagrad on torch's kernels; the default lr is 1e-3 (torch: 1e-2)."""

    _option_names = ("lr", "initial_accumulator_value", "lr_decay", "weight_decay", "eps")

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 0.001,
        lr_decay: float = 0.0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        contiguous_params: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        self._init_as(
            torch.optim.Adagrad,
            params,
            {"contiguous_params": contiguous_params},
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            eps=eps,
            foreach=foreach,
            maximize=maximize,
            initial_accumulator_value=initial_accumulator_value,
            differentiable=differentiable,
            fused=flag(fused),
        )
        for group in self.param_groups:
            # torch starts every group from the default
            if group["initial_accumulator_value"] != initial_accumulator_value:
                for parameter in group["params"]:
                    self.state[parameter]["sum"].fill_(group["initial_accumulator_value"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its sums start as the first groups' did (torch has none for it and fails
        in step()).
        """
        super().add_param_group(param_group)
        if self.state:  # empty while __init__ adds the first groups
            group = self.param_groups[-1]
            for parameter in group["params"]:
                self.state[parameter].setdefault("step", torch.tensor(0.0))
                if "sum" not in self.state[parameter]:
                    self.state[parameter]["sum"] = torch.full_like(
                        parameter, group["initial_accumulator_value"], memory_format=torch.preserve_format
                    )


__getattr__, __dir__ = _ft(__name__, "torch.optim.adagrad")
