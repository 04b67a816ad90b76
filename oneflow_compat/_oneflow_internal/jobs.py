"""The job that is being built, and the feed and fetch operators of OneFlow's graph builder, on tensors that
only stand for values.

nn.Graph builds with the engine (`oneflow._graph`); these are for code that builds a job by hand in
`lazy_mode.guard(True)`.
A fed tensor is a FakeTensor: every operator gives its shape and dtype, and nothing is computed.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import torch

from .._errors import OneFlowError
from ..nn.graph.scopes import graph_name

_open: list[Any] = []  # the name of the open job, and its settings once they were given


def JobBuildAndInferCtx_Open(job_name: str) -> None:
    """Begin a job; one at a time."""
    if _open:
        raise OneFlowError(
            f"job {job_name!r} cannot begin: job {_open[0]!r} is still being built; call"
            " JobBuildAndInferCtx_Close() first"
        )
    _open.append(job_name)


def JobBuildAndInferCtx_Close() -> None:
    """End the job being built; nothing happens without one."""
    _open.clear()


def JobBuildAndInferCtx_GetCurrentJobName() -> str:
    """The job being built: one opened by hand, or the nn.Graph whose build() runs."""
    name = _open[0] if _open else graph_name.get()
    if name is None:
        raise OneFlowError(
            "no job is being built: JobBuildAndInferCtx_Open() begins one, and build() of an nn.Graph runs"
            " in one"
        )
    return name


def CurJobBuildAndInferCtx_SetJobConf(job_conf: Any) -> None:
    """Give the open job its settings; the names must agree."""
    name = JobBuildAndInferCtx_GetCurrentJobName()
    if isinstance(job_conf, str):
        return
    if job_conf.job_name != name:
        raise OneFlowError(
            f"settings of job {job_conf.job_name!r} were given while job {name!r} is being built"
        )
    _open[1:] = [job_conf]


class _OpExpr:
    def __init__(self, op_name: str, op_conf: Any, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        self.name, self.conf, self.inputs, self.outputs = op_name, op_conf, list(inputs), list(outputs)


class FeedInputOpExpr(_OpExpr):
    """An argument of a job."""


class FeedVariableOpExpr(_OpExpr):
    """A variable of a job."""


class FetchOutputOpExpr(_OpExpr):
    """A result of a job."""


one = types.SimpleNamespace(
    FeedInputOpExpr=FeedInputOpExpr,
    FeedVariableOpExpr=FeedVariableOpExpr,
    FetchOutputOpExpr=FetchOutputOpExpr,
)
_mode: list[Any] = []


def _lazy(tensor: torch.Tensor) -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    JobBuildAndInferCtx_GetCurrentJobName()
    if not _mode:
        _mode.append(FakeTensorMode(allow_non_fake_inputs=True))
    return _mode[0].from_tensor(tensor.detach())


def dispatch_feed_input(op: Any, input: torch.Tensor) -> torch.Tensor:
    """A lazy tensor with the shape and dtype of the argument `input`."""
    return _lazy(input)


def dispatch_feed_variable(op: Any, input: torch.Tensor, l2: float = 0.0) -> torch.Tensor:
    """A lazy tensor with the shape and dtype of the variable `input`."""
    return _lazy(input)


def dispatch_fetch_output(op: Any, input: torch.Tensor) -> torch.Tensor:
    """An eager tensor that the result `input` of the job would be written to; its values are undefined.

    It has the shape and dtype of `input`.
    """
    return torch.empty(input.shape, dtype=input.dtype, device=input.device)
