"""Values that variables had some calls ago: `ssp_variable_proxy` and the setting `enable_ssp`."""

from __future__ import annotations

from typing import Any

import torch

from . import context as _context
from .update import outside_capture


class StaleValues:
    """The values of a variable at the starts of the last `size` calls, the newest first.

    They are filled with the variable's value before the first call, and again after the variable was loaded.
    """

    def __init__(self, variable: Any, size: int) -> None:
        self.variable, self.is_filled = variable, False
        self.values = variable.tensor.detach().new_zeros((size, *variable.tensor.shape))

    def fill(self) -> None:
        if not self.is_filled:
            self.values.copy_(self.variable.tensor.detach())
            self.is_filled = True

    def push(self) -> torch.Tensor:
        """Return the oldest value, and replace it by the current one."""
        with torch.no_grad():
            oldest = self.values[-1].clone()
            newest = self.variable.tensor.detach()[None]
            self.values.copy_(torch.cat([newest, self.values[:-1]]))
        return oldest


class _ValueOf(torch.autograd.Function):
    """An old value of a variable, whose gradient is that of the variable."""

    @staticmethod
    def forward(ctx: Any, variable: torch.Tensor, oldest: torch.Tensor) -> torch.Tensor:
        return oldest.view_as(oldest)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, None]:
        return gradients[0], None


def stale_value(trace: Any, name: str, buffer_size: int) -> torch.Tensor:
    """The value of a variable of the job as it was `buffer_size - 1` updates ago."""
    if buffer_size < 1:
        raise ValueError(f"ssp_variable_proxy: buffer_size must be at least 1, found {buffer_size}")
    tensor: torch.Tensor = trace.variables[name]
    if buffer_size == 1 or trace.probe:
        return tensor
    key = (trace.job.name, name, buffer_size)
    if key not in trace.stale:
        buffers = trace.session.stale_values
        if key not in buffers:
            with outside_capture(trace):
                buffers[key] = StaleValues(trace.created_by[name], buffer_size - 1)
        if not trace.captured:
            buffers[key].fill()
        old = _ValueOf.apply(tensor, buffers[key].push())
        trace.stale[key] = trace.set_name(old, f"{name}_ssp_variable_proxy/value_0")
    value: torch.Tensor = trace.stale[key]
    return value


def ssp_buffer_size(trace: Any) -> int:
    """How many values of a trainable variable the open stage of a pipeline keeps; 1 without `enable_ssp`."""
    if trace.job.job_type != "train" or not trace.job.config.values.get("enable_ssp"):
        return 1
    settings: dict[str, int] = {}
    for scope in _context.all_open("config"):
        settings.update(scope)
    stages, stage = settings.get("ssp_num_stages", 1), settings.get("ssp_stage_id", 0)
    if not 0 <= stage < stages:
        raise ValueError(
            f"scope.config: ssp_stage_id must be from 0 to ssp_num_stages - 1, found ssp_stage_id={stage} and"
            f" ssp_num_stages={stages}"
        )
    return stages - stage
