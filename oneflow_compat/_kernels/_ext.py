"""Loading of the kernel library `oneflow/_ext.so` (built by csrc/build.py) and `use(x, ...)`, by which each
operator decides whether to run its kernel.

Without the library the plain-torch functions run, and one warning says so. ONEFLOW_EXT=0 switches it off.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from .. import _env
from . import registration

PATH = Path(__file__).resolve().parents[1] / "_ext.so"
_FLOATS = frozenset((torch.float32, torch.float64, torch.bfloat16))
_FLOATS_ON_CUDA = _FLOATS | {torch.float16}
WIDE = frozenset((torch.float32, torch.float64))


@functools.cache
def status() -> str:
    """ "loaded", or the reason why the kernels are not used. The first call loads the library, and registers
    what torch needs to trace and differentiate its operators.
    """
    loading = load()
    if loading == "loaded":
        registration.register()
    return loading


@functools.cache
def load() -> str:
    """Load the library, and return as `status` does. Its operators can only be called.

    That suffices for a compiled program, and takes a tenth of the time.
    """
    if not _env.is_set("ONEFLOW_EXT"):
        return "switched off by ONEFLOW_EXT"
    path = Path(_env.get("ONEFLOW_EXT_PATH") or PATH)
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        if path.exists():
            return f"could not be loaded: {error}"
        return (
            f"not built: {path.name} is missing, because torch or a C++ compiler was not there when the"
            " package was installed, as in `pip install torch .`; repeat `pip install .`, or run"
            " python csrc/build.py in a checkout"
        )
    return "loaded"


@functools.cache
def _loaded() -> bool:
    if status() == "loaded":
        return True
    warn_if_missing()
    return False


@functools.cache
def warn_if_missing() -> None:
    """Warn once in a process that the kernels are missing. Call it where they would have been used."""
    if load() != "loaded" and _env.is_set("ONEFLOW_EXT"):
        warnings.warn(
            f"oneflow's custom kernels are not used, plain torch is, which is slower ({load()})",
            stacklevel=5,
        )


@functools.cache
def has_kernels(device_type: str) -> bool:
    """Whether the library is loaded and has kernels for this type of device."""
    if not _loaded():
        return False
    return device_type == "cpu" or (
        device_type == "cuda" and torch._C._dispatch_has_kernel_for_dispatch_key("oneflow::bias_gelu", "CUDA")
    )


def use(*tensors: torch.Tensor | None, dtypes: Collection[torch.dtype] = _FLOATS) -> bool:
    """Whether the kernel can take these tensors; None is skipped. They need one floating dtype, on the CPU or
    on a GPU that the library has kernels for.

    False under torch.compile (which fuses the plain functions itself), autocast (torch's rules for each plain
    function hold), functorch transforms and forward-mode AD, and for DTensor. The plain functions support all
    of these.
    """
    reference: Any = tensors[0]  # never None
    if torch.compiler.is_compiling():
        return False
    dtype, device, device_type = reference.dtype, reference.device, reference.device.type
    if dtype not in (_FLOATS_ON_CUDA if dtypes is _FLOATS and device_type == "cuda" else dtypes):
        return False
    if not has_kernels(device_type) or torch.is_autocast_enabled(device_type):
        return False
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return False
    distributed = sys.modules.get("torch.distributed.tensor")
    for t in tensors:
        if t is not None and (
            t.dtype is not dtype
            or t.device != device
            or distributed is not None
            and isinstance(t, distributed.DTensor)
        ):
            return False
    return True


def needs_deterministic_gradient(x: torch.Tensor, *others: torch.Tensor | None) -> bool:
    """Whether torch.use_deterministic_algorithms asks for a gradient that a CUDA kernel computes
    by atomics.
    """
    return (
        torch.are_deterministic_algorithms_enabled()
        and x.device.type == "cuda"
        and torch.is_grad_enabled()
        and torch._C._any_requires_grad(x, *others)
    )


def follows_input(function: Callable[..., Any]) -> Callable[..., Any]:
    """The autocast rule of the operators OneFlow runs in the type they are given: under autocast the floating
    tensors after the first take its dtype, and the operator runs with autocast off. (Matrix products keep
    torch's rule: the lower type.)
    """
    first_name = function.__code__.co_varnames[0]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if args else kwargs.get(first_name)
        if (
            not isinstance(x, torch.Tensor)
            or not torch.is_autocast_enabled(x.device.type)
            or not x.is_floating_point()
        ):
            return function(*args, **kwargs)

        def cast(t: Any) -> Any:
            return t.to(x.dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t

        with torch.autocast(x.device.type, enabled=False):
            return function(*map(cast, args), **{k: cast(v) for k, v in kwargs.items()})

    return call


def seed(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """A random int64 on x's device, sampled from the generator (default: torch's). Dropout kernels start
    their counter from it.
    """
    return torch.empty((), dtype=torch.int64, device=x.device).random_(generator=generator)
