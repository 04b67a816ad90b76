"""oneflow.sbp: how a global tensor is spread over ranks: split(dim), broadcast, partial_sum."""

from __future__ import annotations

import operator
from typing import Any

from ._errors import RefusedType


class sbp:
    """How a tensor is spread along one dimension of the rank grid. A call returns the object itself."""

    __slots__ = ("_kind", "_dim")

    def __init__(self, name: str, dim: int | None = None) -> None:
        self._kind = name
        self._dim: Any = dim  # the dimension of split; None for the other kinds

    def __call__(self) -> sbp:
        return self

    def _ToAttrStr(self) -> str:
        return {"split": f"S({self._dim})", "broadcast": "B", "partial_sum": "P"}[self._kind]

    def __eq__(self, value: object) -> bool:
        return isinstance(value, sbp) and (self._kind, self._dim) == (value._kind, value._dim)

    def __hash__(self) -> int:
        return hash((self._kind, self._dim))

    def __repr__(self) -> str:
        return f"oneflow.sbp.split(dim={self._dim})" if self._kind == "split" else f"oneflow.sbp.{self._kind}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self._kind, self._dim)


def _make(name: str, dim: int | None) -> sbp:
    return split(dim) if name == "split" else (broadcast if name == "broadcast" else partial_sum)


def split(dim: int | None = None, **kwargs: Any) -> sbp:
    """The SBP that splits a tensor along `dim` (0 to 5); `axis=` is an older spelling.

    TypeError unless `dim` is one int. RuntimeError for an int outside 0..5.
    """
    axis = kwargs.pop("axis", dim)
    if kwargs or axis is None:
        raise TypeError(f"sbp.split(dim) takes one dimension, found dim={dim!r} {kwargs or ''}")
    try:
        axis = operator.index(axis)
    except TypeError:
        raise RefusedType(
            f"sbp.split: the dimension must be an int, found {type(axis).__name__} {axis!r}"
        ) from None
    if axis < 0:
        raise RuntimeError(f"sbp.split: the dimension must not be negative, found {axis}")
    if axis >= 6:
        raise RuntimeError(f"sbp.split: the dimension must be below 6, found {axis}")
    return sbp("split", axis)


broadcast = sbp("broadcast")
partial_sum = sbp("partial_sum")
