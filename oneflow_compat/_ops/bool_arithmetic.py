"""Differences with bool tensors, which torch refuses: `1 - mask` is how OneFlow programs turn a
mask round.
"""

from __future__ import annotations

import torch

from .tensor_arrays import reflected
from .tensor_extended import replacing

__all__ = []


def difference(x, y, alpha=1):
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


def _is_bool(value):
    return isinstance(value, bool) or isinstance(value, torch.Tensor) and value.dtype is torch.bool


def _as_integer(value):
    """Return a bool as int, a bool tensor as int64, and any other value unchanged."""
    if not _is_bool(value):
        return value
    return value.to(torch.int64) if isinstance(value, torch.Tensor) else int(value)


@replacing
def sub(original, error, self, other=None, *, alpha=1):
    """Tensor.sub of bool tensors."""
    return difference(self, other, alpha)


@replacing
def negative(original, error, self):
    """Tensor.neg of a bool tensor, in the default dtype."""
    return original(self.to(torch.get_default_dtype())) if self.dtype is torch.bool else NotImplemented


def minus(original):
    """tensor - other of bool tensors."""

    def method(self, operand):
        try:
            return original(self, operand)
        except RuntimeError:
            out = difference(self, operand)
            if out is NotImplemented:
                raise
            return out

    return _named(method, original)


def rminus(original):
    """number - bool tensor; array - tensor as `reflected` has it."""
    plain = reflected(original)

    def method(self, operand):
        try:
            return plain(self, operand)
        except RuntimeError:
            out = difference(operand, self)
            if out is NotImplemented:
                raise
            return out

    return _named(method, original)


def _named(method, original):
    method.__name__, method.__qualname__, method.__doc__, method.__module__ = (
        original.__name__,
        original.__qualname__,
        original.__doc__,
        "oneflow",
    )
    return method
