"""flow.config: resources of the session. `_tables/legacy/config.py` says what each setting does here."""

from collections.abc import Callable
from typing import Any

import torch

from ...._tables.legacy.config import RESOURCE
from .._jobs import session as _session
from .._jobs.settings import setter
from . import collective_boxing


def _record(name: str, value: str | float) -> None:
    _session.default().settings[name] = value
    effect = _EFFECTS.get(name)
    if effect is not None:
        effect(value)


def _tf32(value: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = bool(value)


def _load(path: str) -> None:
    torch.ops.load_library(path)


_EFFECTS: dict[str, Callable[[Any], None]] = {
    "enable_tensor_float_32_compute": _tf32,
    "load_library": _load,
    "load_library_now": _load,
}

for _name, _row in RESOURCE.items():
    globals()[_name] = setter(_name, _row, "val", _record, _name)


def legacy_model_io_enabled() -> bool:
    return bool(_session.default().settings.get("enable_legacy_model_io", False))


def use_cpu_when_no_gpu(val: bool = True) -> None:
    """Run jobs placed on "gpu" on the CPU if there is no CUDA device (the same as ONEFLOW_LEGACY_CPU=1)."""
    _session.default().settings["cpu_for_gpu"] = bool(val)
