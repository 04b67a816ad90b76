"""Operators and methods of Tensor as in OneFlow 0.9; each function takes the present one and returns the
other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._ops import reduce


def _category(t: torch.Tensor) -> int:
    return 0 if t.dtype is torch.bool else 2 if t.is_floating_point() else 3 if t.is_complex() else 1


def aligned(a: Any, b: Any) -> tuple[Any, Any]:
    """A 0-d tensor next to an N-d one of a lower category takes that one's dtype."""
    if (
        isinstance(b, torch.Tensor)
        and isinstance(a, torch.Tensor)
        and (a.dim() == 0) != (b.dim() == 0)
        and a.dtype is not b.dtype
    ):
        if a.dim() == 0 and _category(a) > _category(b):
            a = a.to(b.dtype)
        elif b.dim() == 0 and _category(b) > _category(a):
            b = b.to(a.dtype)
    return a, b


def _integer(t: object) -> bool:
    return (
        isinstance(t, int) and not isinstance(t, bool)
        if not isinstance(t, torch.Tensor)
        else _category(t) < 2
    )


def _is_bool(t: object) -> bool:
    return isinstance(t, torch.Tensor) and t.dtype is torch.bool


def narrowed(a: Any, b: Any) -> tuple[Any, Any]:
    """For / and **: a floating 0-d tensor next to an integer N-d one is float32, whatever its width."""
    if isinstance(b, torch.Tensor) and isinstance(a, torch.Tensor) and (a.dim() == 0) != (b.dim() == 0):
        if a.dim() == 0 and a.is_floating_point() and _category(b) == 1:
            a = a.float()
        elif b.dim() == 0 and b.is_floating_point() and _category(a) == 1:
            b = b.float()
    return a, b


def _operator(
    rule: Callable[..., Any], aligned: Callable[[Any, Any], tuple[Any, Any]] = aligned
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`rule(original, a, b)` as a replacement for an operator; strangers go to the original."""

    def row(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original, assigned=("__name__", "__doc__"), updated=())
        def op(self: torch.Tensor, other: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(other, (torch.Tensor, int, float)):
                return original(self, other, *args, **kwargs)
            return rule(original, *aligned(self, other), *args, **kwargs)

        return op

    return row


plain = _operator(lambda original, a, b, *args, **kwargs: original(a, b, *args, **kwargs))


def _bool_difference(a: Any, b: Any) -> torch.Tensor:
    if _is_bool(a) and _is_bool(b):
        return torch.logical_xor(a, b)
    scalar = a if isinstance(b, torch.Tensor) else b
    wide = torch.int64 if isinstance(scalar, int) else torch.get_default_dtype()
    return torch.sub(*(t.to(wide) if isinstance(t, torch.Tensor) else t for t in (a, b)))


def _sub(original: Callable[..., Any], a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    if _is_bool(a) and (_is_bool(b) or not isinstance(b, torch.Tensor)):
        return _bool_difference(a, b)
    return original(a, b, *args, **kwargs)


def _rsub(original: Callable[..., Any], a: Any, b: Any) -> Any:
    return _bool_difference(b, a) if _is_bool(a) and not isinstance(b, torch.Tensor) else original(a, b)


def _div(original: Callable[..., Any], a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    if _is_bool(a) and _is_bool(b):
        return torch.logical_and(a, b)
    if _is_bool(a) and isinstance(b, int):
        return torch.div(a.to(torch.int64), b, rounding_mode="trunc")
    return original(a, b, *args, **kwargs)


def _floordiv(original: Callable[..., Any], a: Any, b: Any) -> Any:
    return torch.div(a, b, rounding_mode="trunc") if _integer(a) and _integer(b) else original(a, b)


def _pow(original: Callable[..., Any], a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(b, torch.Tensor) and _integer(a) and _integer(b) and isinstance(a, torch.Tensor):
        return original(a.float(), b.float())
    return original(a, b, *args, **kwargs)


sub, rsub, floordiv = map(_operator, (_sub, _rsub, _floordiv))
div, pow = _operator(_div, narrowed), _operator(_pow, narrowed)
rdiv = _operator(lambda original, a, b: original(a, b), narrowed)
rfloordiv = _operator(
    lambda original, a, b: (
        torch.div(b, a, rounding_mode="trunc") if _integer(a) and _integer(b) else original(a, b)
    )
)
mod = _operator(lambda original, a, b: torch.fmod(a, b))
rmod = _operator(lambda original, a, b: torch.fmod(torch.as_tensor(b), a))
logical_and = _operator(lambda original, a, b: torch.logical_and(a, torch.as_tensor(b)))
logical_or = _operator(lambda original, a, b: torch.logical_or(a, torch.as_tensor(b)))
logical_xor = _operator(lambda original, a, b: torch.logical_xor(a, torch.as_tensor(b)))


def rebinding(original: Callable[..., Any]) -> Callable[..., Any]:
    """No in-place form: Python falls back to the operator and binds a new tensor."""
    return lambda self, operand: NotImplemented


def to_float(original: Callable[..., Any]) -> Callable[..., Any]:
    """The unary operation of an integer or bool tensor in float32."""

    @functools.wraps(original, assigned=("__name__", "__doc__"), updated=())
    def op(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return original(self.float() if _category(self) < 2 else self, *args, **kwargs)

    return op


def norm(original: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """The matrix norm for p = 1, -1, inf, -inf of a matrix, as `oneflow.norm`."""

    def norm(
        self: torch.Tensor,
        p: float | str = "fro",
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        return reduce.norm(self, p, dim, keepdim, dtype)

    return norm


def tolerances(original: Callable[..., Any]) -> Callable[..., Any]:
    """allclose and isclose with atol before rtol."""
    return lambda self, other, atol=1e-08, rtol=1e-05, equal_nan=False: original(
        self, other, rtol=rtol, atol=atol, equal_nan=equal_nan
    )
