"""Settings of torch that decide what build() computes: one tuple, compared before each call.

Autocast is part of the key of a program (engine.py), so it is not among them.
"""

from typing import Any

import torch
import torch._C as C
from torch.backends import mha
from torch.utils import _device

from ..instrumentation.policy import is_of_torch

_NAMES = (
    "torch.get_default_dtype()",
    "torch.get_default_device()",
    "torch.is_grad_enabled()",
    "torch.are_deterministic_algorithms_enabled()",
    "the warn_only of torch.use_deterministic_algorithms()",
    "torch.get_float32_matmul_precision()",
    "torch.backends.cuda.flash_sdp_enabled()",
    "torch.backends.cuda.math_sdp_enabled()",
    "torch.backends.cuda.mem_efficient_sdp_enabled()",
    "torch.backends.mkldnn.enabled",
    "torch.backends.mha.get_fastpath_enabled()",
    "the number of active torch function modes",
    "torch.is_anomaly_enabled()",
    "torch.get_autocast_dtype('cpu')",
    "torch.get_autocast_dtype('cuda')",
    "torch.is_autocast_cache_enabled()",
    "torch.set_flush_denormal()",
    "torch.autograd.graph.saved_tensors_hooks()",
)
_DENORMAL = 5e-324


def torch_settings(records_gradients: bool) -> tuple[Any, ...]:
    """Return the present values, in the order of the names.

    `records_gradients`: the program records gradients in each grad mode, because it trains.
    """
    return (
        torch.get_default_dtype(),
        _device.CURRENT_DEVICE,
        records_gradients or torch.is_grad_enabled(),
        C._get_deterministic_algorithms(),
        C._get_deterministic_algorithms_warn_only(),
        C._get_float32_matmul_precision(),
        C._get_flash_sdp_enabled(),
        C._get_math_sdp_enabled(),
        C._get_mem_efficient_sdp_enabled(),
        C._get_mkldnn_enabled(),
        mha._is_fastpath_enabled,
        C._len_torch_function_stack(),
        torch.is_anomaly_enabled(),
        torch.get_autocast_dtype("cpu"),
        torch.get_autocast_dtype("cuda"),
        torch.is_autocast_cache_enabled(),
        _DENORMAL * 1.0 == 0.0,  # torch has no getter; Python's numbers are flushed, too
        _saved_tensors_hooks(),
    )


def _saved_tensors_hooks() -> tuple[Any, ...] | None:
    """Return the innermost hooks. Those of torch (save_on_cpu) are new functions each time."""
    hooks = C._autograd._top_saved_tensors_default_hooks(True)
    if hooks is None:
        return None
    codes = (getattr(hook, "__code__", None) for hook in hooks)
    return tuple(
        code if code is not None and is_of_torch(code.co_filename) else hook
        for hook, code in zip(hooks, codes)
    )


def changed_setting(before: tuple[Any, ...], now: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the name of the first setting that differs, its old value and its new value."""
    return next((name, old, new) for name, old, new in zip(_NAMES, before, now) if old != new)
