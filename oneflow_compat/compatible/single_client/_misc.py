"""Names of the top level that fit nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._global.placement import placement as today
from . import _session
from ._user_ops import (
    builtin_op,  # noqa: F401
    run,
)
from .checkpoint import get
from .checkpoint import save as save_snapshot
from .scope import namespace
from .scope import placement as scope_placement

INVALID_SPLIT_AXIS = -1

record = "record"  # names of OneFlow's data types that no tensor has
tensor_buffer = "tensor_buffer"

_DTYPES = [torch.float16, torch.float32, torch.float64, torch.int8, torch.int32, torch.int64, torch.uint8]


def Generator(device: Any = None) -> Any:
    """A new random generator."""
    return torch.Generator() if device is None else torch.Generator(device)


def default_generator(device: Any = None) -> Any:
    """torch's generator of the device ("cpu" if None)."""
    if device is None or torch.device(device).type == "cpu":
        return torch.default_generator
    return torch.cuda.default_generators[torch.device(device).index or 0]


def dtypes() -> list[Any]:
    """The data types of blobs."""
    return list(_DTYPES)


def convert_oneflow_dtype_to_numpy_dtype(oneflow_dtype: str | torch.dtype) -> type:
    """The numpy scalar type of a dtype (flow.float32 -> numpy.float32)."""
    if not isinstance(oneflow_dtype, torch.dtype):
        raise TypeError(f"expected a OneFlow dtype such as flow.float32, found {oneflow_dtype!r}")
    return torch.empty(0, dtype=oneflow_dtype).numpy().dtype.type


def InitEagerGlobalSession() -> None:
    """Nothing to start."""


def current_machine_id() -> int:
    return 0


def placement(*args: Any, **kwargs: Any) -> Any:
    """Today's oneflow.placement."""
    return today(*args, **kwargs)


def fixed_placement(*args: Any, **kwargs: Any) -> Any:
    """Old name of scope.placement."""
    return scope_placement(*args, **kwargs)


device_prior_placement = eager_fixed_placement = fixed_placement


def is_deprecated(func_or_class: Callable[..., Any]) -> bool:
    """Whether the object is one of `flow.deprecated`."""
    return getattr(func_or_class, "__module__", "").startswith(f"{__package__}.deprecated")


def name_scope(*args: Any, **kwargs: Any) -> Any:
    """Old name of scope.namespace."""
    return namespace(*args, **kwargs)


def inter_job_reuse_mem_strategy(strategy_str: str, job_set: Any = None, **kwargs: Any) -> None:
    """Checked and ignored: torch's allocator shares memory between jobs."""
    allowed = ("reuse_mem_priority", "parallelism_priority", "custom_parallelism")
    if strategy_str not in allowed:
        raise ValueError(f"inter_job_reuse_mem_strategy: one of {', '.join(allowed)}, found {strategy_str!r}")
    _session.default().settings["inter_job_reuse_mem_strategy"] = strategy_str


def eager_nccl_all_reduce(x: torch.Tensor, parallel_conf: str, name: str | None = None) -> torch.Tensor:
    """The blob itself: with one device the sum over the devices is the blob."""
    return x


def save(obj: Any, save_dir: Any) -> Any:
    """Today's oneflow.save; a dict of variables (flow.get_all_variables()) becomes a snapshot folder."""
    if (
        isinstance(obj, dict)
        and obj
        and all(hasattr(v, "numpy") for v in obj.values())
        and not isinstance(next(iter(obj.values())), torch.Tensor)
    ):
        return save_snapshot(save_dir, obj)
    import importlib

    return importlib.import_module(__package__.split(".")[0]).save(obj, save_dir)


def load(path: Any) -> Any:
    """A snapshot folder as {name: blob}, anything else as today's oneflow.load."""
    import os

    if os.path.isfile(os.path.join(path, "snapshot_done")):
        return get(path)
    import importlib

    return importlib.import_module(__package__.split(".")[0]).load(path)


def user_op_builder(op_name: str) -> _UserOp:
    return _UserOp(op_name)


class _UserOp:
    """Builder of one operator by its OneFlow name.

    After `.Build().InferAndTryRun()`, read `.RemoteBlobList()` or `.SoleOutputBlob()`.
    """

    def __init__(self, op_name: str) -> None:
        self.op_name = op_name
        self._type: str | None = None
        self._inputs, self._attrs, self._outputs = {}, {}, {}

    def Op(self, op_type_name: str) -> _UserOp:
        self._type = op_type_name
        return self

    def Input(self, input_name: str, input_blob_list: Sequence[torch.Tensor]) -> _UserOp:
        self._inputs[input_name] = list(input_blob_list)
        return self

    def InputSize(self, input_name: str, size: Any) -> Any:
        if len(self._inputs.get(input_name, ())) != size:
            raise ValueError(
                f"user op {self.op_name}: input {input_name!r} has {len(self._inputs.get(input_name, ()))}"
                f" blobs, expected {size}"
            )
        return self

    def Output(self, output_name: str, num: int = 1) -> _UserOp:
        self._outputs[output_name] = num
        return self

    def Attr(self, attr_name: str, attr_value: float | Sequence[int], attr_type_name: Any = None) -> _UserOp:
        self._attrs[attr_name] = attr_value
        return self

    def Build(self) -> _UserOp:
        if self._type is None:
            raise ValueError(f"user op {self.op_name}: name the operator with .Op(type)")
        return self

    def InferAndTryRun(self) -> _UserOp | None:
        result = run(self._type, self._inputs, self._attrs)
        self._results = list(result) if isinstance(result, (list, tuple)) else [result]
        return self

    def RemoteBlobList(self) -> list[torch.Tensor]:
        return self._results

    def SoleOutputBlob(self) -> torch.Tensor:
        if len(self._results) != 1:
            raise ValueError(f"user op {self.op_name} has {len(self._results)} outputs, not one")
        return self._results[0]


def user_op_module_builder(op_type_name: str) -> _UserOp:
    """The builder of `user_op_builder` under the name of the operator."""
    return _UserOp(op_type_name).Op(op_type_name)


consistent_user_op_builder = user_op_builder
consistent_user_op_module_builder = user_op_module_builder
