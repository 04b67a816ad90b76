"""The errors of kernels, for calls that torch's fake kernels refuse in other words.

`x @ y` says "a and b must have same reduction dim" for fake tensors and "mat1 and mat2 shapes cannot be
multiplied (2x3 and 4x2)" for real ones. A fake kernel may raise another class of error, too.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from ...program.operators import facts_of, is_written
from ...program.symbolic import SYMBOLIC_NUMBERS
from .meta_kernels import is_static_fake

# Classes derived from these say why torch or this package cannot record the call.
_OF_ARGUMENTS = (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, AssertionError)


class _Unknown(Exception):
    pass


@contextlib.contextmanager
def _generator_kept() -> Iterator[None]:
    """Restore the state of the generator. `torch.random.fork_rng` would become a part of the program."""
    generator = torch._C.default_generator
    state = generator.get_state()
    try:
        yield
    finally:
        generator.set_state(state)


def kernel_error(
    error: Exception, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception | None:
    """Return what the kernel raises for real tensors of the same layouts, or None if it takes them.

    `error` is what the fake kernel raised. Operators of other libraries are not called: they may do more than
    compute results.
    """
    if type(error) not in _OF_ARGUMENTS or getattr(func, "namespace", None) != "aten":
        return None
    return _error_of(func, args, kwargs, _real)


def silent_refusal(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """Return the error of a kernel about the overlaps or dtypes of arguments that the fake kernel takes.

    Compiled code has no such checks either. The kernel runs once for each unusual combination of dtypes, on
    the CPU, and for each call whose written tensor overlaps an operand.
    """
    leaves = pytree.tree_leaves((args, kwargs))
    tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
    if func.namespace != "aten" or not func._schema.returns or not all(map(_is_static_fake_on_cpu, tensors)):
        return None
    if func._schema.is_mutable and _writes_an_overlap(func, args, kwargs):
        error = _error_of(func, args, kwargs, functools.partial(_sharing, {}))
        if error is not None and _OF_OVERLAPS in str(error):
            return error
    dtypes = tuple(v.dtype for v in tensors)
    key = func, dtypes, tuple(type(v) for v in leaves if type(v) in _NUMBERS)
    if key in _usual_dtypes or not _may_refuse(func, dtypes):
        return None
    error = _error_of(func, args, kwargs, functools.partial(_sharing, {}))
    if error is not None and _is_about_dtypes(error):
        return error
    _usual_dtypes.add(key)
    return None


# (operator, dtypes of its tensors, classes of its numbers) that the kernel takes
_usual_dtypes: set[tuple[Any, ...]] = set()
_NUMBERS = (bool, int, float, complex)
_OF_DTYPES = re.compile("dtype|scalar type|can't be cast|not (implemented|supported|support)")


def _is_static_fake_on_cpu(tensor: torch.Tensor) -> bool:
    return is_static_fake(tensor) and tensor.fake_device.type == "cpu"


def _may_refuse(func: OpOverload, dtypes: tuple[torch.dtype, ...]) -> bool:
    """Whether the kernel of an operator has to be asked if it takes tensors of these dtypes."""
    is_integer_written = func._schema.is_mutable and bool(dtypes) and not dtypes[0].is_floating_point
    return (is_integer_written or _are_unusual(dtypes)) and not facts_of(func).needs_recorded_shapes


def _is_about_dtypes(error: Exception) -> bool:
    return type(error) is NotImplementedError or bool(_OF_DTYPES.search(str(error)))


def _are_unusual(dtypes: tuple[torch.dtype, ...]) -> bool:
    """Whether a kernel may refuse the dtypes: no tensor is floating, or several floating dtypes meet."""
    floating = {dtype for dtype in dtypes if dtype.is_floating_point}
    return len(floating) != 1 and bool(dtypes) or any(dtype.is_complex for dtype in dtypes)


def _error_of(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], as_real: Callable[[object], Any]
) -> Exception | None:
    """Return what the kernel raises for real tensors, which `as_real` makes of the fake ones, or None."""
    with _disable_current_modes(), torch.no_grad(), _generator_kept():
        try:
            real_args, real_kwargs = pytree.tree_map(as_real, (args, kwargs))
        except (_Unknown, RuntimeError):  # a RuntimeError: there is not enough memory
            return None
        try:
            func(*real_args, **real_kwargs)
        except Exception as error_of_kernel:
            error_of_kernel.__context__ = None  # the error of the fake kernel
            return error_of_kernel.with_traceback(None)
    return None


_OF_OVERLAPS = "Please clone() the tensor"  # all checks of overlaps say so


def _writes_an_overlap(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a written tensor may have several elements in one place, or lies in the memory of an operand of
    another layout.
    """
    operands = [v for v in (*args, *kwargs.values()) if type(v) is FakeTensor]
    for position, argument in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        if type(value) is not FakeTensor or not is_written(argument):
            continue
        if any(step == 0 and size != 1 for size, step in zip(value.shape, value.stride())):
            return True
        memory, layout = value.untyped_storage()._cdata, _layout(value)
        if any(v.untyped_storage()._cdata == memory and _layout(v) != layout for v in operands):
            return True
    return False


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset()


def _sharing(memory: dict[int, torch.Tensor], value: Any) -> Any:
    """Return a real tensor of zeros for a fake one. Two that share memory share it."""
    if type(value) is not FakeTensor:
        return _real(value)
    storage = value.untyped_storage()
    if storage._cdata not in memory:
        memory[storage._cdata] = torch.zeros(storage.nbytes(), dtype=torch.uint8)
    flat = torch.empty(0, dtype=value.dtype).set_(memory[storage._cdata].untyped_storage())
    return flat.as_strided(value.shape, value.stride(), value.storage_offset())


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
