"""Tensors of given data: `tensor`, `as_tensor` and their kin.

NumPy floating scalars, and lists of them or of arrays, get the default dtype as Python floats do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ._signature import documented
from .creation import _modes, make

__all__ = ["as_tensor", "from_numpy", "frombuffer", "tensor"]

_FLOATS = frozenset((torch.float64, torch.float16, torch.float32))


def _is_numpy(data: Any) -> bool:
    """Whether the first leaf of nested lists that is not a Python integer comes from NumPy."""
    depth = 0
    while type(data) in (list, tuple) and data:
        data, depth = next((item for item in data if type(item) is not int), None), depth + 1
    return isinstance(data, np.floating) or (depth > 0 and isinstance(data, np.ndarray))


def _from_data(
    target: Callable[..., Any], data: Any, dtype: torch.dtype | None = None, **kwargs: Any
) -> torch.Tensor:
    """target(data, dtype, ...), torch's result except where the docstring of `tensor` says otherwise."""
    if type(data) is list and data and isinstance(data[0], np.ndarray):
        data = np.array(data)  # torch reads a list of arrays element by element
        if dtype is None and data.dtype.kind == "f":
            dtype = torch.get_default_dtype()
    try:
        out = target(data, dtype=dtype, **kwargs)
    except (ValueError, TypeError, RuntimeError) as error:
        out = _from_refused_data(target, data, dtype, error, kwargs)
        if out is None:
            raise
        return out
    if dtype is not None or isinstance(data, (torch.Tensor, np.ndarray)) or out.dtype not in _FLOATS:
        return out
    if out.dtype is not torch.get_default_dtype() and _is_numpy(data):
        return target(data, dtype=torch.get_default_dtype(), **kwargs)
    return out


def _from_refused_data(
    target: Callable[..., Any], data: Any, dtype: torch.dtype | None, error: Exception, kwargs: dict[str, Any]
) -> torch.Tensor | None:
    """Return the tensor of data that torch refuses, or None."""
    if isinstance(error, RuntimeError):
        if "overflow" not in str(error) or dtype is None or isinstance(data, (np.ndarray, torch.Tensor)):
            return None
        return target(data, dtype=torch.int64, **kwargs).to(dtype)  # integers wrap, as in OneFlow
    if isinstance(data, np.ndarray) and any(s < 0 for s in data.strides):
        return target(data.copy(), dtype=dtype, **kwargs)
    if holds_tensors(data):
        stacked = torch.as_tensor(stacked_tensors(data), dtype=dtype, device=kwargs.get("device"))
        return stacked.requires_grad_(kwargs.get("requires_grad", False))
    if dtype is None or not _of_numpy_numbers(data):
        return None
    array = np.asarray(data).astype(torch.empty(0, dtype=dtype).numpy().dtype)
    return target(array, dtype=dtype, **kwargs)


def _of_numpy_numbers(data: Any) -> bool:
    return (
        isinstance(data, np.generic)
        or type(data) in (list, tuple)
        and bool(data)
        and all(map(_of_numpy_numbers, data))
    )


def holds_tensors(data: Any) -> bool:
    return (
        type(data) in (list, tuple)
        and bool(data)
        and all(isinstance(d, torch.Tensor) or holds_tensors(d) for d in data)
    )


def stacked_tensors(data: Any) -> torch.Tensor:
    """A nested list of tensors of one shape as one tensor, which torch refuses unless they hold one number
    each.
    """
    return (
        data.detach() if isinstance(data, torch.Tensor) else torch.stack([stacked_tensors(d) for d in data])
    )


@documented(
    "(data, dtype=None, device=None, requires_grad=False, pin_memory=False, *, placement=None, sbp=None)"
)
def tensor(
    data: Any,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **kwargs: Any,
) -> torch.Tensor:
    """A copy of `data` as a tensor.

    NumPy floating scalars, and lists of them or of floating arrays, get the default dtype (torch: their
    own) and become any dtype that is asked for; arrays with negative strides are copied; integers too large
    for `dtype` wrap; a list of tensors of one shape is stacked, without gradients.
    """
    if kwargs or _modes:
        return make(
            "tensor",
            functools.partial(_from_data, torch.tensor),
            (data,),
            {"dtype": dtype, "device": device, "requires_grad": requires_grad, **kwargs},
        )
    if (
        dtype is None
        and device is None
        and not pin_memory
        and (type(data) is not list or not data or type(data[0]) is not np.ndarray)
    ):
        try:
            out = torch.tensor(data, requires_grad=requires_grad)
            if (
                out.dtype is torch.get_default_dtype()
                or out.dtype not in _FLOATS
                or isinstance(data, (np.ndarray, torch.Tensor))
            ):
                return out
        except (ValueError, RuntimeError, TypeError):
            pass
    return _from_data(
        torch.tensor, data, dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory
    )


@documented("(data, dtype=None, device=None, *, placement=None, sbp=None)")
def as_tensor(
    data: Any, dtype: torch.dtype | None = None, device: torch.device | str | int | None = None, **kwargs: Any
) -> torch.Tensor:
    """`data` as a tensor, without a copy where possible; NumPy floating scalars as in `oneflow.tensor`."""
    if kwargs or _modes:
        return make(
            "as_tensor",
            functools.partial(_from_data, torch.as_tensor),
            (data,),
            {"dtype": dtype, "device": device, **kwargs},
        )
    return _from_data(torch.as_tensor, data, dtype, device=device)


def from_numpy(obj: np.ndarray | None = None, **kwargs: Any) -> torch.Tensor:
    """The tensor sharing the memory of the array `obj` (torch calls it `ndarray`).

    The tensor has the shape and dtype of the array. TypeError for other keywords.
    """
    if kwargs:
        obj = kwargs.pop("ndarray", obj)
    if kwargs:
        raise TypeError(f"from_numpy() got unexpected keywords {sorted(kwargs)}; it takes one array")
    return torch.from_numpy(obj)


def frombuffer(
    buffer: Any, dtype: torch.dtype, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> torch.Tensor:
    """torch.frombuffer with every argument also by position."""
    return torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset, requires_grad=requires_grad)
