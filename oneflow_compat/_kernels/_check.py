"""Argument checks shared by the operators; an error states what was asked for and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

Value = TypeVar("Value")


def axis_of(name: str, axis: int, ndim: int) -> int:
    """`axis` counted from the front."""
    if not -ndim <= axis < ndim:
        raise IndexError(
            f"{name}: axis {axis} is out of range for a tensor of {ndim} dimensions (use {-ndim} to"
            f" {ndim - 1})"
        )
    return axis % ndim


def bias_along(name: str, x: torch.Tensor, bias: torch.Tensor, axis: int) -> int:
    """Check a 1-d bias against dimension `axis` of x; the axis counted from the front."""
    axis = axis_of(name, axis, x.ndim)
    if bias.ndim != 1 or bias.shape[0] != x.shape[axis]:
        raise RuntimeError(
            f"{name}: the bias must be 1-d and as long as dimension {axis} of the input {tuple(x.shape)},"
            f" found shape {tuple(bias.shape)}"
        )
    return axis


def rate(name: str, p: float) -> float:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}: the dropout probability p must be in [0, 1], found {p}")
    return float(p)


def one_of(name: str, argument: str, value: Value, allowed: Sequence[Value]) -> Value:
    if value not in allowed:
        raise ValueError(
            f"{name}: {argument} must be one of {', '.join(map(repr, allowed))}, found {value!r}"
        )
    return value


def along(bias: torch.Tensor, axis: int, ndim: int) -> torch.Tensor:
    """A 1-d bias viewed so that it broadcasts along `axis` of an `ndim`-d tensor."""
    return bias.reshape((-1,) + (1,) * (ndim - 1 - axis))


def tensor_in(name: str, value: torch.Tensor | None, kwargs: dict[str, Any]) -> torch.Tensor:
    """The tensor OneFlow calls `in`, which no Python parameter can be called."""
    value = kwargs.pop("in", value)
    if kwargs or value is None:
        raise TypeError(
            f"{name}() got an unexpected argument {next(iter(kwargs))!r}"
            if kwargs
            else f"{name}() needs the tensor `in`"
        )
    return value


def needed(name: str, argument: str, value: Value | None) -> Value:
    """The value of an argument that only follows optional ones, or TypeError for None."""
    if value is None:
        raise TypeError(f"{name}() needs the argument `{argument}`")
    return value
