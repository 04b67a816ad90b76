"""Core types, switches and paths: device, Generator, the dialect, where the package lies."""

from __future__ import annotations

import os
from typing import Any

import torch

from .. import _env
from .._bind import apply_dialect
from .._cpu_for_cuda import cpu_for_cuda
from .._exact import switch
from .._global.placement import require_device_type

__all__ = [
    "Generator",
    "device",
    "get_dialect",
    "is_tensor",
    "oneflow_internal_path",
    "oneflow_python_base_dir",
    "set_dialect",
]

oneflow_python_base_dir = oneflow_internal_path = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def is_tensor(obj: object) -> bool:
    """Whether `obj` is a tensor: torch.is_tensor, which takes its argument by position only."""
    return isinstance(obj, torch.Tensor)


class _MakesTorchs(type):
    """Metaclass of a class whose constructor returns objects of torch's class `_made`. isinstance() and
    issubclass() test for `_made`.
    """

    def __instancecheck__(cls, obj: object) -> bool:
        return isinstance(obj, cls._made)

    def __subclasscheck__(cls, sub: type) -> bool:
        return sub is cls or issubclass(sub, cls._made)


class device(metaclass=_MakesTorchs):
    """A torch.device; an accelerator without a number is number 0, as in OneFlow.

    `oneflow.device("cuda") == oneflow.device("cuda:0")`; "cpu" and "cpu:0" are "cpu" without a
    number because tensors report it so. Takes ("cuda", 1), ("cuda:1"), (torch.device), (1), (type=, index=).
    "mock" is OneFlow's device type for tests: a device of that type holds no tensors.
    """

    _made = torch.device

    def __new__(cls, *args: Any, **kwargs: Any) -> torch.device:  # type: ignore[misc]
        asked = args[0] if args else kwargs.get("type", kwargs.get("device"))
        if isinstance(asked, str):
            require_device_type(asked.partition(":")[0])
        device = torch.device(*args, **kwargs)
        if device.index is None and device.type not in ("cpu", "meta"):
            return torch.device(device.type, 0)
        return torch.device("cpu") if device.type == "cpu" and device.index == 0 else device


class Generator(metaclass=_MakesTorchs):
    """A torch.Generator of the device; "auto", OneFlow's default, is the CPU's."""

    _made = torch.Generator

    def __new__(cls, device: torch.device | str | None = None) -> torch.Generator:  # type: ignore[misc]
        device = cpu_for_cuda(device)
        return torch.Generator() if device in (None, "auto") else torch.Generator(device)


_dialect = None


def get_dialect() -> str:
    """ "oneflow", "torch" or "oneflow-0.9": whose meaning holds for the rows of `_tables/dialect.py`."""
    return _dialect or _env.get("ONEFLOW_DIALECT")


def set_dialect(name: str) -> None:
    """Choose whose meaning holds where OneFlow and torch disagree: "oneflow" (the default), "torch" or
    "oneflow-0.9".

    "torch" switches exactly the rows of `_tables/dialect.py`, by binding each name to torch's object.
    "oneflow-0.9" is "oneflow" with OneFlow 0.9's operators, quirks and CPU random numbers as well
    (`_tables/exact.py`), on torch.Tensor itself and so for the whole process. Objects taken out of the
    namespace earlier keep the meaning they had.

    ValueError for another name.
    """
    global _dialect
    if name not in ("oneflow", "torch", "oneflow-0.9"):
        raise ValueError(
            f"set_dialect: asked for {name!r}; the dialects are 'oneflow', 'torch' and 'oneflow-0.9'"
        )
    switch(False)
    apply_dialect("torch" if name == "torch" else "oneflow")
    switch(name == "oneflow-0.9")
    _dialect = name
