"""Arithmetic methods that torch refuses, of integer and bool tensors, of different dtypes, and with NumPy
arrays: "replace" rows of `_tables/tensor.py`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..._method import named_method
from .replacing import promoted, replacing

if TYPE_CHECKING:
    from .replacing import Method


__all__ = []


def _cannot_hold(error: Exception) -> bool:
    return "can't be cast to the desired output type" in str(error)


@replacing
def changed(
    original: Method, error: Exception, self: torch.Tensor, other: Any, *args: Any, **kwargs: Any
) -> Any:
    """-= and *= of an integer tensor with a floating tensor: computed in floating point, then truncated. Also
    -= with a bool tensor.
    """
    if not isinstance(other, torch.Tensor):
        return NotImplemented
    if other.dtype is torch.bool:
        return (
            self.logical_xor_(other)
            if self.dtype is torch.bool
            else original(self, other.to(self.dtype), *args, **kwargs)
        )
    if not _cannot_hold(error):
        return NotImplemented
    wide = self.to(torch.promote_types(self.dtype, other.dtype))
    return self.copy_(original(wide, other, *args, **kwargs))


@replacing
def added(original: Method, error: Exception, self: torch.Tensor, other: Any, *, alpha: float = 1) -> Any:
    """+= of an integer tensor with a floating tensor, which is truncated first."""
    if not isinstance(other, torch.Tensor) or not _cannot_hold(error):
        return NotImplemented
    return original(self, (other if alpha == 1 else alpha * other).to(self.dtype))


@replacing
def clamped(original: Method, error: Exception, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Bounds of an integer tensor are truncated; OneFlow calls the bound of clamp_max_ `min`."""
    if original.__name__ == "clamp_max_" and "min" in kwargs and "max" not in kwargs:
        kwargs["max"] = kwargs.pop("min")
        return clamped(original)(self, *args, **kwargs)
    if not _cannot_hold(error):
        return NotImplemented
    whole = lambda bound: (
        bound.to(self.dtype)
        if isinstance(bound, torch.Tensor)
        else int(bound)
        if isinstance(bound, float)
        else bound
    )
    return original(self, *map(whole, args), **{key: whole(bound) for key, bound in kwargs.items()})


@replacing
def quotient_added(
    original: Method,
    error: Exception,
    self: torch.Tensor,
    tensor1: torch.Tensor,
    tensor2: torch.Tensor,
    *,
    value: float = 1,
) -> Any:
    """addcdiv_ of a floating tensor with two integer ones, which are divided in its dtype."""
    if not all(isinstance(t, torch.Tensor) for t in (tensor1, tensor2)) or not self.is_floating_point():
        return NotImplemented
    return original(self, tensor1.to(self.dtype), tensor2.to(self.dtype), value=value)


def floor_divided(original: Method) -> Method:
    """x // y with a gradient, which is zero."""
    return named_method(original, _floor_divided, always=True)


def _floor_divided(original: Method, error: None, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    out = original(self, *args, **kwargs)
    if isinstance(out, torch.Tensor) and out.requires_grad:
        return torch.div(self, *args, **kwargs, rounding_mode="floor")
    return out


# --------------------------------------------------------------------------- products
@replacing
def matmul(
    original: Method, error: Exception, self: torch.Tensor, other: Any, *args: Any, **kwargs: Any
) -> Any:
    """Matrix products of different dtypes: in their common dtype; Tensor.matmul and bmm also transpose and
    scale.
    """
    if not isinstance(other, torch.Tensor):
        return NotImplemented
    if args or kwargs:
        from .. import linalg_ops  # not loaded by `import oneflow`

        extended = {"bmm": linalg_ops.bmm, "matmul": linalg_ops.matmul}.get(original.__name__)
        return NotImplemented if extended is None else extended(self, other, *args, **kwargs)
    same = promoted(self, other)
    return NotImplemented if same is None else original(*same)


@replacing
def bmm(
    original: Method,
    error: Exception,
    self: torch.Tensor,
    b: Any = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
) -> Any:
    """bmm with OneFlow's transpose and scale arguments, and of different dtypes."""
    from .. import linalg_ops  # not loaded by `import oneflow`

    if b is None or (
        not transpose_a
        and not transpose_b
        and alpha == 1.0
        and promoted(self, b) is None
        and isinstance(error, RuntimeError)
    ):
        return NotImplemented
    return linalg_ops.bmm(self, b, transpose_a, transpose_b, alpha)


# --------------------------------------------------------------------------- bool tensors
# OneFlow programs turn a mask round by `1 - mask`, which torch refuses.
def difference(x: Any, y: Any, alpha: float = 1) -> Any:
    """x - alpha * y where one is a bool (tensor): of two bool tensors a bool tensor, with another tensor its
    dtype, with a number int64 or the number's dtype; NotImplemented otherwise.
    """
    if not _is_bool(x) and not _is_bool(y):
        return NotImplemented
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        if x.dtype is y.dtype:
            return torch.logical_xor(x, y) if alpha == 1 else NotImplemented
        dtype = torch.result_type(x, y)
        return torch.sub(x.to(dtype), y.to(dtype), alpha=alpha)
    x, y = _as_integer(x), _as_integer(y)
    return torch.sub(x, y, alpha=alpha) if isinstance(x, torch.Tensor) else torch.rsub(y, x, alpha=alpha)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool) or isinstance(value, torch.Tensor) and value.dtype is torch.bool


def _as_integer(value: Any) -> Any:
    """Return a bool as int, a bool tensor as int64, and any other value unchanged."""
    if not _is_bool(value):
        return value
    return value.to(torch.int64) if isinstance(value, torch.Tensor) else int(value)


@replacing
def sub(
    original: Method, error: Exception, self: torch.Tensor, other: Any = None, *, alpha: float = 1
) -> Any:
    """Tensor.sub of bool tensors."""
    return difference(self, other, alpha)


@replacing
def negative(original: Method, error: Exception, self: torch.Tensor) -> Any:
    """Tensor.neg of a bool tensor, in the default dtype."""
    return original(self.to(torch.get_default_dtype())) if self.dtype is torch.bool else NotImplemented


@replacing
def minus(original: Method, error: Exception | None, self: torch.Tensor, operand: Any) -> Any:
    """tensor - other of bool tensors."""
    return difference(self, operand) if isinstance(error, RuntimeError) else NotImplemented


# --------------------------------------------------------------------------- NumPy arrays
def reflected(original: Method) -> Method:
    """array + tensor and its kin, which torch refuses: NumPy's result with the tensor's values, an array, as
    in OneFlow. number & floating tensor is logical, and number - bool tensor is of integers.
    """
    symbol = original.__name__.strip("_")[1:]
    function = {"and": operator.and_, "or": operator.or_}.get(symbol) or getattr(operator, symbol)
    logical = getattr(torch, f"logical_{symbol}", None)

    def slow(original: Method, error: Exception | None, self: torch.Tensor, operand: Any) -> Any:
        if error is not None and symbol == "sub":
            return difference(operand, self)
        if error is not None and (logical is None or not isinstance(error, NotImplementedError)):
            return NotImplemented
        if error is not None:
            return logical(torch.as_tensor(operand, device=self.device), self)  # type: ignore[misc]
        is_array = type(operand).__module__ == "numpy" and hasattr(operand, "__array_interface__")
        return function(operand, self.numpy()) if is_array else NotImplemented

    return replacing(slow)(original)


@replacing
def compared(original: Method, error: Exception | None, self: torch.Tensor, operand: Any) -> Any:
    """tensor > array, array > tensor and their kin, which torch refuses (its != is the number True for any
    array): a bool tensor.
    """
    if error is not None or not isinstance(operand, np.ndarray):
        return NotImplemented
    return original(self, torch.as_tensor(operand, device=self.device))
