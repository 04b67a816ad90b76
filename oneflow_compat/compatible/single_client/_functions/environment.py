"""Data types, generators, scopes, saving: names of the top level that are no operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...._cpu_for_cuda import cpu_for_cuda
from ...._global.placement import placement as today
from .._jobs import session as _session
from ..checkpoint import get
from ..checkpoint import save as save_snapshot
from ..scope import namespace
from ..scope import placement as scope_placement

INVALID_SPLIT_AXIS = -1

record = "record"  # names of OneFlow's data types that no tensor has
tensor_buffer = "tensor_buffer"

_DTYPES = [torch.float16, torch.float32, torch.float64, torch.int8, torch.int32, torch.int64, torch.uint8]


def Generator(device: Any = None) -> Any:
    """A new random generator."""
    return torch.Generator() if device is None else torch.Generator(cpu_for_cuda(device))


def default_generator(device: Any = None) -> Any:
    """torch's generator of the device ("cpu" if None)."""
    device = cpu_for_cuda(device)
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
    return getattr(func_or_class, "__module__", "").startswith(f"{__package__.rpartition('.')[0]}.deprecated")


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
