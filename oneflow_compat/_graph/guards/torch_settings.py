"""Guards of the settings of torch that decide what build() computes.

Autocast is part of the key of a program (engine.py), so it is not among them.
"""

import contextvars
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch._C as C
from torch.backends import cuda, mha, mkldnn
from torch.utils import _device

from ..code_origins import is_of_torch
from .guard import Guard
from .sources import Answer, Item, State

_DENORMAL = 5e-324
_WARNS_ONLY = "the warn_only of torch.use_deterministic_algorithms()"
_Questions = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]  # label -> (function, arguments)


def _getter(name: str, public: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[()]]:
    """Return the question of a getter in C, or of torch's public function if torch has no such getter."""
    return getattr(C, name, public), ()


_STATE: _Questions = {  # what torch's GlobalStateGuard compares
    "torch.get_default_dtype()": (torch.get_default_dtype, ()),
    "torch.are_deterministic_algorithms_enabled()": _getter(
        "_get_deterministic_algorithms", torch.are_deterministic_algorithms_enabled
    ),
    _WARNS_ONLY: _getter(
        "_get_deterministic_algorithms_warn_only", torch.is_deterministic_algorithms_warn_only_enabled
    ),
    "torch.is_autocast_cache_enabled()": (torch.is_autocast_cache_enabled, ()),
}
_GRAD_MODE: _Questions = {"torch.is_grad_enabled()": (torch.is_grad_enabled, ())}
_OTHERS: _Questions = {
    # GlobalStateGuard compares them only while autocast is on
    "torch.get_autocast_dtype('cpu')": (torch.get_autocast_dtype, ("cpu",)),
    "torch.get_autocast_dtype('cuda')": (torch.get_autocast_dtype, ("cuda",)),
    "torch.get_float32_matmul_precision()": _getter(
        "_get_float32_matmul_precision", torch.get_float32_matmul_precision
    ),
    "torch.backends.cuda.flash_sdp_enabled()": _getter("_get_flash_sdp_enabled", cuda.flash_sdp_enabled),
    "torch.backends.cuda.math_sdp_enabled()": _getter("_get_math_sdp_enabled", cuda.math_sdp_enabled),
    "torch.backends.cuda.mem_efficient_sdp_enabled()": _getter(
        "_get_mem_efficient_sdp_enabled", cuda.mem_efficient_sdp_enabled
    ),
    "torch.backends.mkldnn.enabled": _getter("_get_mkldnn_enabled", lambda: bool(mkldnn.enabled)),
    "the number of active torch function modes": (C._len_torch_function_stack, ()),
    "torch.is_anomaly_enabled()": (torch.is_anomaly_enabled, ()),
    # torch has no getter; Python's numbers are flushed, too
    "torch.set_flush_denormal()": (_DENORMAL.__gt__, (0.0,)),
}
_HOOKS = "torch.autograd.graph.saved_tensors_hooks()"
_CONTEXT = "a context variable"


def setting_guards(records_gradients: bool) -> list[Guard]:
    """Return guards of the present settings.

    `records_gradients`: the program records gradients in each grad mode, because it trains.
    """
    state = _STATE if records_gradients else _STATE | _GRAD_MODE
    guards = [_answer(label, *question, State) for label, question in state.items()]
    guards += [_answer(label, *question) for label, question in _OTHERS.items()]
    if hasattr(C._autograd, "_top_saved_tensors_default_hooks"):  # torch has no public getter
        innermost = _answer(_HOOKS, C._autograd._top_saved_tensors_default_hooks, (True,))
        guards.append(innermost if innermost.value is None else _answer(_HOOKS, _saved_tensors_hooks))
    return guards + [
        _global(_device, "CURRENT_DEVICE", "torch.get_default_device()", _default_device),
        _global(
            mha,
            "_is_fastpath_enabled",
            "torch.backends.mha.get_fastpath_enabled()",
            mha.get_fastpath_enabled,
        ),
    ]


_Values = dict[str, Any]  # label -> the value of a setting
_SETTERS: dict[str, Callable[[_Values], object]] = {
    "torch.get_default_dtype()": lambda of: torch.set_default_dtype(of["torch.get_default_dtype()"]),
    "torch.get_float32_matmul_precision()": lambda of: torch.set_float32_matmul_precision(
        of["torch.get_float32_matmul_precision()"]
    ),
    "torch.is_anomaly_enabled()": lambda of: torch.autograd.set_detect_anomaly(
        of["torch.is_anomaly_enabled()"]
    ),
    **dict.fromkeys(
        ("torch.are_deterministic_algorithms_enabled()", _WARNS_ONLY),
        lambda of: torch.use_deterministic_algorithms(
            of["torch.are_deterministic_algorithms_enabled()"], warn_only=of[_WARNS_ONLY]
        ),
    ),
    "torch.get_num_threads()": lambda of: torch.set_num_threads(of["torch.get_num_threads()"]),
    "np.geterr()": lambda of: np.seterr(**of["np.geterr()"]),
    _CONTEXT: lambda of: _set_context_variables(of[_CONTEXT]),
}
# label -> its value: settings that decide no program, or that have a guard where build() asks for them
_NOT_GUARDED: dict[str, Callable[[], Any]] = {
    "torch.get_num_threads()": torch.get_num_threads,
    "np.geterr()": np.geterr,
}


def present_settings() -> _Values:
    """Return the settings that build() may leave changed, those of the context variables included."""
    values = {str(guard.label): guard.value for guard in setting_guards(records_gradients=False)}
    values.update((label, ask()) for label, ask in _NOT_GUARDED.items())
    return values | {_CONTEXT: dict(contextvars.copy_context())}


def restore_settings(before: _Values) -> str | None:
    """Set back what build() has changed. Return the label of a changed setting, or None."""
    now = present_settings()
    changed = [label for label, value in before.items() if _has_changed(label, value, now[label])]
    for label in changed:
        if label in _SETTERS:
            _SETTERS[label](before)
    return changed[0] if changed else None


def _has_changed(label: str, old: Any, new: Any) -> bool:
    if label == _CONTEXT:  # the values may have any `==`; a library sets its own variable at its first use
        return any(value is not new[variable] for variable, value in old.items())
    return bool(old != new)


def _set_context_variables(values: dict[contextvars.ContextVar[Any], Any]) -> None:
    """Give the variables their values again. Python cannot take a value from a variable that had none."""
    for variable, value in values.items():
        if variable.get() is not value:
            variable.set(value)


def _global(module: ModuleType, name: str, label: str, public: Callable[[], Any]) -> Guard:
    """Return a guard of a global of torch, or of the answer of a function if torch has no such global."""
    if not hasattr(module, name):
        return _answer(label, public)
    return Guard(Item(name), vars(module), getattr(module, name), label)


def _default_device() -> str:
    """Return the name of the default device; torch makes a new object for each question."""
    return str(torch.get_default_device())


def _answer(
    label: str, function: Callable[..., Any], arguments: tuple[Any, ...] = (), source: type[Answer] = Answer
) -> Guard:
    """Return a guard of the present answer. torch refuses some, which is an answer, too."""
    guard = Guard(source((None, arguments)), function, None, label)
    guard.value = guard.current()
    return guard


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
