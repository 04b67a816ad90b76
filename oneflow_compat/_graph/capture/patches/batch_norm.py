"""BatchNorm with momentum=None during a capture: its momentum is one over a counter, which is a buffer.

What this file reads of the module is observed (observe/instrumentation/policy.py), as are reads in torch's
own forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

Forward = Callable[[_BatchNorm, torch.Tensor], torch.Tensor]


def averaging_forward(
    original: Forward,
    active: Callable[[], object],
    reciprocal: Callable[[torch.Tensor], float] | None,
) -> Forward:
    """Return the forward of BatchNorm under capture.

    `reciprocal(counter)` gives the number that eager computes. Without it, tensors compute the average.
    """

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        averages = self.momentum is None and self.training and self.track_running_stats
        if not active() or not averages or self.num_batches_tracked is None:
            return original(self, x)
        self._check_input_dim(x)
        self.num_batches_tracked.add_(1)
        if reciprocal is None:
            return _averaged(self, x)
        momentum = reciprocal(self.num_batches_tracked)
        return torch.nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, True, momentum, self.eps
        )

    return forward


def _averaged(module: Any, x: torch.Tensor) -> torch.Tensor:
    """Batch norm whose running statistics are the mean over all batches, in tensor arithmetic."""
    out = torch.nn.functional.batch_norm(x, None, None, module.weight, module.bias, True, 0.0, module.eps)
    with torch.no_grad():
        factor, dims = 1.0 / module.num_batches_tracked.float(), [d for d in range(x.dim()) if d != 1]
        for running, now in ((module.running_mean, x.mean(dims)), (module.running_var, x.var(dims))):
            running.mul_(1.0 - factor).add_(now * factor)
    return out
