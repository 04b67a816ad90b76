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
    if not any(isinstance(v, bool) or isinstance(v, torch.Tensor) and v.dtype is torch.bool for v in (x, y)):
        return NotImplemented
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and x.dtype is y.dtype:
        return torch.logical_xor(x, y) if alpha == 1 else NotImplemented
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        dtype = torch.result_type(x, y)
        return torch.sub(x.to(dtype), y.to(dtype), alpha=alpha)
    x, y = (
        (
            v.to(torch.int64)
            if isinstance(v, torch.Tensor) and v.dtype is torch.bool
            else int(v)
            if isinstance(v, bool)
            else v
        )
        for v in (x, y)
    )
    return torch.sub(x, y, alpha=alpha) if isinstance(x, torch.Tensor) else torch.rsub(y, x, alpha=alpha)


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

    def method(self, other):
        try:
            return original(self, other)
        except RuntimeError:
            out = difference(self, other)
            if out is NotImplemented:
                raise
            return out

    return _named(method, original)


def rminus(original):
    """number - bool tensor; array - tensor as `reflected` has it."""
    plain = reflected(original)

    def method(self, other):
        try:
            return plain(self, other)
        except RuntimeError:
            out = difference(other, self)
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
