"""oneflow.optim.LBFGS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from .._bind import fall_through as _ft
from .optimizer import Optimizer

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT


__all__ = ["LBFGS"]


class LBFGS(Optimizer, torch.optim.LBFGS):
    """torch's L-BFGS; the default lr is 1e-3 (torch: 1). One parameter group; step() needs a closure."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 0.001,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-07,
        tolerance_change: float = 1e-09,
        history_size: int = 100,
        line_search_fn: Literal["strong_wolfe"] | None = None,
        contiguous_params: bool = False,
    ) -> None:
        self._init_as(
            torch.optim.LBFGS,
            params,
            {"contiguous_params": contiguous_params},
            lr=lr,
            max_iter=max_iter,
            max_eval=max_eval,
            tolerance_grad=tolerance_grad,
            tolerance_change=tolerance_change,
            history_size=history_size,
            line_search_fn=line_search_fn,
        )


__getattr__, __dir__ = _ft(__name__, "torch.optim.lbfgs")
