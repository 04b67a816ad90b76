"""ONEFLOW_CPU_FOR_CUDA=1: programs that name CUDA devices run on the CPU of a machine without one.

A torch function mode replaces the devices in calls of torch, as torch.set_default_device() does; the classes
of this package ask `cpu_for_cuda`. torch.Generator and what needs a device in torch.cuda are replaced in the
whole process. With a CUDA device the variable has no effect.
"""

from __future__ import annotations

import contextlib
import os
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from . import _env

_NAME = "ONEFLOW_CPU_FOR_CUDA"
_CPU = torch.device("cpu")
_GENERATOR = torch.Generator  # torch's class, which install() replaces


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


class _Event:
    """A torch.cuda.Event on the CPU, whose work is done once the call returns."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._seconds: float | None = None

    def record(self, stream: Any = None) -> None:
        self._seconds = time.perf_counter()

    def elapsed_time(self, end_event: _Event) -> float:
        """Return the milliseconds between the two records."""
        if self._seconds is None or end_event._seconds is None:
            raise ValueError("elapsed_time: record() both events before asking for the time between them")
        return 1000 * (end_event._seconds - self._seconds)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Return at once."""

    def wait(self, stream: Any = None) -> None:
        """Return at once."""


class _Stream:
    """A torch.cuda.Stream on the CPU, where operators run in the order of their calls."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = _CPU

    def record_event(self, event: _Event | None = None) -> _Event:
        event = event or _Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Return at once."""

    def wait_stream(self, stream: Any) -> None:
        """Return at once."""

    def wait_event(self, event: Any) -> None:
        """Return at once."""


class _KindOfGenerator(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _GENERATOR)


class _Generator(torch.Generator, metaclass=_KindOfGenerator):
    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, _replaced(device))  # type: ignore[call-arg]


def _memory() -> tuple[int, int]:
    """Return the bytes of memory that are free, and those of the machine."""
    page, free, total = map(os.sysconf, ("SC_PAGE_SIZE", "SC_AVPHYS_PAGES", "SC_PHYS_PAGES"))
    return page * free, page * total


def _properties() -> types.SimpleNamespace:
    return types.SimpleNamespace(
        name="cpu", major=0, minor=0, total_memory=_memory()[1], multi_processor_count=os.cpu_count() or 1
    )


def _always(value: Any) -> Callable[..., Any]:
    """Return a new function that returns a value for any arguments. torch.compile needs one per name."""
    return lambda *_, **__: value


def _names_of_cuda() -> dict[str, Any]:
    """Return what stands for the names of torch.cuda that raise without a CUDA device."""
    tensors = (
        "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor"
        " LongTensor ShortTensor"
    )
    nothing = (
        "init ipc_collect synchronize set_device set_per_process_memory_fraction"
        " reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached"
    )
    return {
        **{name: getattr(torch, name) for name in tensors.split()},
        **{name: _always(None) for name in nothing.split()},
        "device": contextlib.nullcontext,
        "Event": _Event,
        "Stream": _Stream,
        "current_stream": lambda *_, **__: _Stream(),
        "default_stream": lambda *_, **__: _Stream(),
        "current_device": _always(0),
        "can_device_access_peer": _always(False),
        "is_current_stream_capturing": _always(False),
        "memory_summary": _always(""),
        "memory_snapshot": lambda *_, **__: [],
        "mem_get_info": lambda *_, **__: _memory(),
        "get_device_name": _always("cpu"),
        "get_device_capability": _always((0, 0)),
        "get_device_properties": lambda *_, **__: _properties(),
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "set_rng_state": lambda new_state, device="cuda": torch.set_rng_state(new_state),
        "initial_seed": lambda: torch.initial_seed(),
    }


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
        for name, value in _names_of_cuda().items():
            setattr(torch.cuda, name, value)
        for name in ("mark", "range_push", "range_pop", "range_start", "range_end"):
            setattr(torch.cuda.nvtx, name, _always(None))
        torch.Generator = _Generator  # type: ignore[misc]
