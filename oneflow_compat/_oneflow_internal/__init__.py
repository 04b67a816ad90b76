"""oneflow._oneflow_internal: the few names of OneFlow's C++ module that client code and its tests
reach for.
"""

from __future__ import annotations

import operator
import types
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor, manual_seed

from .. import _lazy_mode as lazy_mode
from .._cpu_for_cuda import cpu_for_cuda
from .._message import data_type_number
from .._ops.core import Generator
from ..framework._helpers import _broadcast_py_object
from . import _C, eager, exception, flags, jobs, remat, test_api  # type: ignore[attr-defined]
from .jobs import (
    CurJobBuildAndInferCtx_SetJobConf,
    JobBuildAndInferCtx_Close,
    JobBuildAndInferCtx_GetCurrentJobName,
    JobBuildAndInferCtx_Open,
    one,
)

TensorTuple = list
dtype = torch.dtype
Size = torch.Size


def cpu_broadcast(data: bytes, src: int = 0) -> bytes:
    """Rank `src`'s bytes on every rank."""
    return _broadcast_py_object(data, src)


def CudaSynchronize(device_id: int = 0) -> None:
    """Wait for the device; nothing without CUDA."""
    if torch.cuda.is_available():
        torch.cuda.synchronize(device_id)


def GetCUDAMemoryUsed() -> int:
    """MiB in use on the current CUDA device."""
    return torch.cuda.memory_allocated() >> 20 if torch.cuda.is_available() else 0


def GetCPUMemoryUsed() -> int:
    """MiB this process holds."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def GetCurrentStack() -> str:
    """Return the caller's stack as lines of a traceback, innermost frame first."""
    import traceback

    return "".join(reversed(traceback.format_stack()[:-1]))


def default_generator(device: str = "auto", index: int | None = None) -> torch.Generator:
    """The device's own random stream: the CPU's for "cpu" and "auto"."""
    owner = torch.device("cpu" if device == "auto" else cpu_for_cuda(device))
    if owner.type == "cpu":
        return torch.default_generator
    torch.cuda.init()
    if index is None:
        index = torch.cuda.current_device() if owner.index is None else owner.index
    return torch.cuda.default_generators[index]


deprecated = types.SimpleNamespace(GetProtoDtype4OfDtype=data_type_number)


def create_generator(device: str = "auto") -> torch.Generator:
    """A new generator of the device."""
    return Generator(device)


_PUBLIC = {  # name here: its public path
    "placement": "placement",
    "sbp": "sbp",
    "device": "device",
    "EmptyCache": "cuda.empty_cache",
    "UniqueStr": "framework.id_util.UniqueStr",
    "GetRank": "env.get_rank",
    "GetLocalRank": "env.get_local_rank",
    "GetWorldSize": "env.get_world_size",
    "GetNodeSize": "env.get_node_size",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        import oneflow

        return operator.attrgetter(_PUBLIC[name])(oneflow)
    if name == "profiler":
        import oneflow

        p = oneflow.profiler
        return types.SimpleNamespace(
            RangePush=p.range_push,
            RangePop=p.range_pop,
            ProfilerStart=p.profiler_start,
            ProfilerStop=p.profiler_stop,
        )
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: OneFlow's C++ runtime does not exist here; use the"
        " public API"
    )
