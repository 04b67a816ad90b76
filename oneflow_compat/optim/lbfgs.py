"""oneflow.optim.LBFGS."""

from __future__ import annotations

import torch

from .._bind import fall_through as _ft
from .optimizer import Optimizer

__all__ = ["LBFGS"]


class LBFGS(Optimizer, torch.optim.LBFGS):
    """torch's L-BFGS; the default lr is 1e-3 (torch: 1). One parameter group; step() needs a closure."""

    def __init__(
        self,
        params,
        lr=0.001,
        max_iter=20,
        max_eval=None,
        tolerance_grad=1e-07,
        tolerance_change=1e-09,
        history_size=100,
        line_search_fn=None,
        contiguous_params=False,
    ):
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
