"""The errors of kernels, for calls that torch's fake kernels refuse in other words.

`x @ y` says "a and b must have same reduction dim" for fake tensors and "mat1 and mat2 shapes cannot be
multiplied (2x3 and 4x2)" for real ones. A fake kernel may raise another class of error, too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from ...program.symbolic import SYMBOLIC_NUMBERS

# Classes derived from these say why torch or this package cannot record the call.
_OF_ARGUMENTS = (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, AssertionError)


class _Unknown(Exception):
    pass


def kernel_error(
    error: Exception, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception | None:
    """Return what the kernel raises for real tensors of the same layouts, or None if it takes them.

    `error` is what the fake kernel raised. Operators of other libraries are not called: they may do more than
    compute results.
    """
    if type(error) not in _OF_ARGUMENTS or getattr(func, "namespace", None) != "aten":
        return None
    with _disable_current_modes(), torch.no_grad(), torch.random.fork_rng(devices=()):
        try:
            real_args, real_kwargs = pytree.tree_map(_real, (args, kwargs))
        except (_Unknown, RuntimeError):  # a RuntimeError: there is not enough memory
            return None
        try:
            func(*real_args, **real_kwargs)
        except Exception as error_of_kernel:
            return error_of_kernel.with_traceback(None)
    return None


def _real(value: Any) -> Any:
    """Return a real tensor with the layout of a fake one, and the present number for a symbolic one."""
    if type(value) in SYMBOLIC_NUMBERS:
        return _number(value)
    if not isinstance(value, FakeTensor):
        return value
    if value.layout is not torch.strided:
        raise _Unknown
    sizes, strides = [_number(n) for n in value.shape], [_number(n) for n in value.stride()]
    count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides)) if all(sizes) else 0
    # indices must be valid; the memory of others is not touched
    make = torch.empty if value.is_floating_point() or value.is_complex() else torch.zeros
    return make(count, dtype=value.dtype, device=value.device).as_strided(sizes, strides)


def _number(size: Any) -> Any:
    if type(size) not in SYMBOLIC_NUMBERS:
        return size
    if not size.node.has_hint():
        raise _Unknown
    return size.node.hint
