"""Tensor methods that job functions add to torch's tensors: rows of `_tables/tensor.py`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ._errors import NoSuchState
from ._import_hook import ROOT

if TYPE_CHECKING:
    import torch


__all__ = ["is_dynamic", "logical_blob_name", "numpy_list", "op_name", "with_distribute"]


def with_distribute(self: torch.Tensor, distribute: Any) -> torch.Tensor:
    """The blob itself: with one device there is one way to hold it. `distribute` is checked."""
    from .compatible.single_client import distribute as module  # the job-function API loads on demand

    module.assert_is_valid_distribute(distribute)
    return self


def logical_blob_name(self: torch.Tensor) -> str:
    """Name of a blob inside a job function, for signatures of saved models ("Input_0/out")."""
    context = sys.modules.get(f"{ROOT}.compatible.single_client._jobs.context")
    current = context.trace() if context is not None else None
    if current is None:
        raise NoSuchState("Tensor.logical_blob_name and op_name are names of a blob inside a job function")
    return current.name_of(self)  # type: ignore[no-any-return]


def op_name(self: torch.Tensor) -> str:
    """The part of logical_blob_name before the slash."""
    return logical_blob_name(self).split("/")[0]


def is_dynamic(self: torch.Tensor) -> bool:
    """True inside a job for an input declared with ListNumpy (its first dimension may vary)."""
    from .compatible.single_client._jobs.context import trace  # loads on demand

    current_trace = trace()
    return current_trace is not None and id(self) in current_trace.dynamic_inputs


def numpy_list(self: torch.Tensor, rank: int | None = None) -> list[Any]:
    """[numpy()]: one array per device, in a job that runs op by op."""
    return [self.numpy()]
