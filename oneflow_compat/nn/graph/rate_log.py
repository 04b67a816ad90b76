"""The learning rate of every step of a training graph, written as OneFlow writes it under
ONEFLOW_DEBUG_MODE.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..._env import is_set

if TYPE_CHECKING:
    import torch

    from .graph_members import GraphMembers


class RateLog:
    """log/HOST/PID-train_step2lr.csv under the working directory; each graph begins the file anew at its
    first call.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._group = optimizer.param_groups[0]
        self._path = Path("log", platform.node(), f"{os.getpid()}-train_step2lr.csv").absolute()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("train_step, lr\n")
        self._step = 0

    def rate(self) -> float:
        """Return the rate of the next step."""
        return float(self._group["lr"])

    def write(self, rate: float) -> None:
        """Add the line of a step."""
        with self._path.open("a") as file:
            file.write(f"{self._step}, {rate:f}\n")
        self._step += 1


def rate_log(graph: GraphMembers) -> RateLog | Literal[False]:
    """Return the RateLog of a graph with an optimizer under ONEFLOW_DEBUG_MODE, else False."""
    return RateLog(graph._opts[0][0]) if graph._opts and is_set("ONEFLOW_DEBUG_MODE") else False
