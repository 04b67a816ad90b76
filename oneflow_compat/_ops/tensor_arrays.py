"""Operators between a tensor and a NumPy array that torch refuses: "replace" rows of `_tables/tensor.py`."""

from __future__ import annotations

import functools
import operator

import numpy as np
import torch

__all__ = []

_AS_FUNCTION = {"and": operator.and_, "or": operator.or_}


def reflected(original):
    """array + tensor and its kin, which torch refuses: NumPy's result with the tensor's values, an array, as
    in OneFlow; number & floating tensor is logical.
    """
    symbol = original.__name__.strip("_")[1:]
    function = _AS_FUNCTION.get(symbol) or getattr(operator, symbol)
    logical = getattr(torch, f"logical_{symbol}", None)

    @functools.wraps(original, assigned=("__name__", "__qualname__", "__doc__"), updated=())
    def method(self, operand):
        try:
            out = original(self, operand)
        except NotImplementedError:
            if logical is None:
                raise
            return logical(torch.as_tensor(operand, device=self.device), self)
        if (
            out is NotImplemented
            and type(operand).__module__ == "numpy"
            and hasattr(operand, "__array_interface__")
        ):
            return function(operand, self.numpy())
        return out

    del method.__wrapped__
    method.__module__ = "oneflow"
    return method


def compared(original):
    """tensor > array, array > tensor and their kin, which torch refuses (its != is the number True for any
    array): a bool tensor.
    """

    @functools.wraps(original, assigned=("__name__", "__qualname__", "__doc__"), updated=())
    def method(self, operand):
        out = original(self, operand)
        if out is NotImplemented and isinstance(operand, np.ndarray):
            return original(self, torch.as_tensor(operand, device=self.device))
        return out

    del method.__wrapped__
    method.__module__ = "oneflow"
    return method
