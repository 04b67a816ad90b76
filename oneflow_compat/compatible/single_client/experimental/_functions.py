"""Names of flow.experimental of 0.5, also those of its deep paths (rows of `_tables/deep_paths.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...._errors import unsupported
from .. import math
from .._functions.indexing import slice_update, slice_v2
from .._jobs import context as _context
from .._jobs import session as _session
from .._jobs.context import scope as _open
from .._jobs.stale_values import stale_value
from .._jobs.variables import assign
from ..scope import namespace

if TYPE_CHECKING:
    import numpy as np


# --------------------------------------------------------------------------- operators
def indexed_slices_reduce_sum(
    indices: torch.Tensor, values: torch.Tensor, name: str | None = None
) -> tuple[torch.Tensor, ...] | None:
    """Return (distinct indices, sums of their rows of `values`, count of distinct indices as int64 (1,)).

    Both results are as long as the input: the distinct entries in ascending order, then zeros as padding.
    The job runs op by op.
    """
    _context.value_dependent("indexed_slices_reduce_sum")
    flat = indices.reshape(-1)
    rows = values.reshape(flat.numel(), -1)
    distinct, positions = torch.unique(flat, return_inverse=True)
    out_ids = torch.zeros_like(flat)
    out_ids[: distinct.numel()] = distinct
    sums = torch.zeros_like(rows).index_add(0, positions, rows).reshape(values.shape)
    return out_ids.reshape(indices.shape), sums, torch.tensor([distinct.numel()], dtype=torch.int64)


def unique_with_counts(
    x: torch.Tensor, out_idx: torch.dtype = torch.int32, name: str | None = None
) -> tuple[torch.Tensor, ...] | None:
    """Return (values, index of each element among them, counts, number of distinct values).

    Values are in the order of their first appearance. Values and counts are as long as x, padded with zeros.
    The job runs op by op.
    """
    _context.value_dependent("unique_with_counts")
    flat = x.reshape(-1)
    index_of, values, counts = {}, [], []
    positions = []
    for v in flat.tolist():
        if v not in index_of:
            index_of[v] = len(values)
            values.append(v)
            counts.append(0)
        counts[index_of[v]] += 1
        positions.append(index_of[v])
    rest = [0] * (flat.numel() - len(values))
    return (
        torch.tensor(values + rest, dtype=x.dtype),
        torch.tensor(positions, dtype=out_idx),
        torch.tensor(counts + rest, dtype=out_idx),
        torch.tensor([len(values)], dtype=out_idx),
    )


def square_sum(x: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """Sum of the squares of all elements, shape (1,)."""
    return x.square().sum().reshape(1)


def ssp_variable_proxy(
    var: torch.Tensor, buffer_size: int = 1, name: str | None = None
) -> tuple[torch.Tensor, ...]:
    """(variable to update, value to compute with): the value is `buffer_size - 1` updates old.

    The first `buffer_size` calls compute with the variable's first value.
    """
    trace = _context.require_trace("flow.experimental.ssp_variable_proxy")
    names = [full for full, tensor in trace.variables.items() if tensor is var]
    if not names:
        raise ValueError(
            "ssp_variable_proxy: the first argument must be what flow.get_variable returned in this job"
        )
    return var, stale_value(trace, names[0], buffer_size)


def broadcast_maximum(a: torch.Tensor, b: torch.Tensor, name: str | None = None) -> Any:
    return math.maximum(a, b)


def broadcast_minimum(a: torch.Tensor, b: torch.Tensor, name: str | None = None) -> Any:
    return math.minimum(a, b)


def get_job_set() -> dict[str, Any]:
    """{"job": [{"name": ..., "type": ..., "inputs": [...]}, ...]} of the session's jobs."""
    return {
        "job": [
            {"name": j.name, "type": j.job_type, "inputs": [n for n, _ in j.inputs]}
            for j in _session.default().jobs.values()
        ]
    }


def logical_slice(x: torch.Tensor, slice_tup_list: Sequence[Any], name: str | None = None) -> torch.Tensor:
    return slice_v2(x, slice_tup_list)


def logical_slice_assign(
    x: torch.Tensor, value: torch.Tensor, slice_tup_list: Sequence[Any], name: str | None = None
) -> torch.Tensor:
    """Set a part of the variable x when the call ends."""
    return assign(x, slice_update(x.detach(), value, slice_tup_list))


def eager_assign_121(ref: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """flow.assign."""
    return assign(ref, value)


class custom_op_module:
    """Builder of OneFlow's C++/Python custom operators; custom operators are built with torch here."""

    def __init__(self, op_module_name: str, module_path: str = "") -> None:
        self.op_module_name, self.module_path = op_module_name, module_path

    def _refuse(self) -> Any:
        return unsupported(
            f"custom_op_module({self.op_module_name!r})",
            "legacy-custom-ops",
            "Write the operator with torch.library or torch.utils.cpp_extension, and load it with"
            " flow.config.load_library.",
        )

    def py_api(self) -> Any:
        raise self._refuse()

    def cpp_def(self) -> Any:
        raise self._refuse()

    def py_kernel(self) -> Any:
        raise self._refuse()

    def cpp_kernel(self) -> Any:
        raise self._refuse()

    def gpu_kernel(self) -> Any:
        raise self._refuse()

    def build_load(self) -> Any:
        raise self._refuse()


# --------------------------------------------------------------------------- variables by name
def sync_default_session_if_normal() -> None:
    _session.sync_default_session()


def GetEagerInterfaceBlob(op_name: str) -> Any:
    """The variable as a blob with numpy()."""
    session = _session.default()
    session.start()
    if op_name not in session.variables:
        raise KeyError(f"there is no variable {op_name!r}; the session has {sorted(session.variables)}")
    return _session.VariableBlob(op_name, session.variables[op_name].tensor)


def GetInterfaceBlobValue(op_name: str) -> Any:
    return GetEagerInterfaceBlob(op_name)


def FeedValueToInterfaceBlob(op_name: str, ndarray: np.ndarray) -> None:
    GetEagerInterfaceBlob(op_name)
    _session.default().load({op_name: ndarray}, ignore_mismatch=False)


def FeedValueToInterfaceBlobObject(blob_object: Any, ndarray: np.ndarray) -> None:
    FeedValueToInterfaceBlob(blob_object.name, ndarray)


get_interface_blob_value, set_interface_blob_value = GetInterfaceBlobValue, FeedValueToInterfaceBlob


# --------------------------------------------------------------------------- scopes
_pushed: list[Any] = []


def name_scope(*args: Any, **kwargs: Any) -> Any:
    """Old name of scope.namespace."""
    return namespace(*args, **kwargs)


def name_scope_stack_push(name: str) -> None:
    """Open a namespace without a with statement."""
    scope = namespace(name)
    scope.__enter__()
    _pushed.append(scope)


def name_scope_stack_pop() -> None:
    _pushed.pop().__exit__(None, None, None)


def GetJobNameScopePrefix(job_name: str | None) -> str:
    """The open namespaces as a prefix, "a-b-"."""
    return "".join(n + "-" for n in _context.all_open("namespace"))


def PrependOpNamePrefixIfNeed(op_conf: Any) -> None:
    """Put the prefix in front of op_conf.name."""
    op_conf.name = GetJobNameScopePrefix(None) + op_conf.name


_IGNORED_SETTINGS = {
    "pipeline_stage_id_hint": "no pipeline on one device",
    "quantization_aware_training": "fake quantization is written out with flow.quantization.*",
    "checkpointing": "activations are kept; use nn.Graph's activation checkpointing to save memory",
}


def scope_config(**kwargs: Any) -> Any:
    """Settings of the enclosed part.

    The stages of a pipeline (`ssp_num_stages`, `ssp_stage_id`) apply to jobs with `enable_ssp`. The settings
    in `_IGNORED_SETTINGS` are ignored, for the reasons given there; unknown ones are an error.
    """
    known = ("ssp_num_stages", "ssp_stage_id", *_IGNORED_SETTINGS)
    for name in kwargs:
        if name not in known:
            raise ValueError(f"scope.config: unknown setting {name!r}; there are {', '.join(known)}")
    return _open("config", kwargs)


def enable_typing_check(val: bool = True) -> None:
    """Recorded; annotations are always checked."""
    _session.default().settings["typing_check"] = bool(val)
