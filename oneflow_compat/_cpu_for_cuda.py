"""ONEFLOW_CPU_FOR_CUDA=1: programs that name CUDA devices run on the CPU of a machine without one.

A torch function mode replaces the devices in calls of torch, as torch.set_default_device() does; the classes
of this package ask `cpu_for_cuda`. With a CUDA device the variable has no effect.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from . import _env

_NAME = "ONEFLOW_CPU_FOR_CUDA"
_CPU = torch.device("cpu")


def is_on() -> bool:
    """Whether CUDA devices mean the CPU in this process."""
    return _env.is_set(_NAME) and not torch.cuda.is_available()


def cpu_for_cuda(value: Any) -> Any:
    """Return the CPU for a CUDA device or its name if is_on(), else the value."""
    return _replaced(value) if is_on() else value


def _replaced(value: Any) -> Any:
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    if not isinstance(value, str):
        return value
    return "cpu" if value.partition(":")[0] == "cuda" else value.replace("torch.cuda.", "torch.")


def names_of_cuda() -> dict[str, Any]:
    """Return what stands for the names of torch.cuda that raise without a CUDA device."""
    types = (
        "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor"
        " LongTensor ShortTensor"
    )
    return {"device": contextlib.nullcontext, **{name: getattr(torch, name) for name in types.split()}}


class _CpuForCuda(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        return func(*map(_replaced, args), **{k: _replaced(v) for k, v in (kwargs or {}).items()})


def install() -> None:
    """Replace CUDA devices from here on, with one warning, if the variable is set and there is no device."""
    if is_on():
        warnings.warn(f"{_NAME}=1: there is no CUDA device, and what names one runs on the CPU", stacklevel=3)
        _CpuForCuda().__enter__()
