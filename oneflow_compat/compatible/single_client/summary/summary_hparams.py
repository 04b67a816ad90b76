"""Hyper-parameters and texts as Summary messages, to be written with flow.summary.pb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _proto

if TYPE_CHECKING:
    from typing import Any

    import torch


class SummaryMessage:
    """A Summary message: SerializeToString() gives its bytes, as does str() in Latin-1."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializeToString(self) -> bytes:
        return self._data

    def __str__(self) -> str:
        return self._data.decode("latin-1")


class IntegerRange:
    """Integers from min_value to max_value."""

    dtype = int

    def __init__(self, min_value: float, max_value: float) -> None:
        if not (isinstance(min_value, int) and isinstance(max_value, int)):
            raise TypeError(f"IntegerRange takes whole numbers, found {min_value!r}, {max_value!r}")
        if min_value > max_value:
            raise ValueError(f"IntegerRange: {min_value} is larger than {max_value}")
        self._min, self._max = min_value, max_value

    min_value = property(lambda self: self._min)
    max_value = property(lambda self: self._max)


class RealRange:
    """Numbers from min_value to max_value."""

    dtype = float

    def __init__(self, min_value: float, max_value: float) -> None:
        if not (isinstance(min_value, float) and isinstance(max_value, float)):
            raise TypeError(f"RealRange takes floats, found {min_value!r}, {max_value!r}")
        if min_value > max_value:
            raise ValueError(f"RealRange: {min_value} is larger than {max_value}")
        self._min, self._max = min_value, max_value

    min_value = property(lambda self: self._min)
    max_value = property(lambda self: self._max)


class ValueSet:
    """One of the values."""

    def __init__(self, values: Any, dtype: torch.dtype | None = None) -> None:
        self._values = list(values)
        self._dtype = dtype or (type(self._values[0]) if self._values else None)
        if any(not isinstance(v, self._dtype) for v in self._values):
            raise TypeError(f"ValueSet: every value must be a {self._dtype.__name__}, found {self._values}")

    values = property(lambda self: list(self._values))
    dtype = property(lambda self: self._dtype)


class HParam:
    """A hyper-parameter: a name and the range of its values."""

    def __init__(self, name: str, dtype: torch.dtype | None = None) -> None:
        self._name, self._dtype = name, dtype

    name = property(lambda self: self._name)
    dtype = property(lambda self: self._dtype)


Hparam = HParam  # the name up to 0.4


class Metric:
    """A measured quantity of a run."""

    def __init__(self, name: str, dtype: torch.dtype | None = None) -> None:
        self._name, self._dtype = name, dtype or float

    name = property(lambda self: self._name)
    dtype = property(lambda self: self._dtype)


def hparams(hparams: Any) -> Any:
    """A Summary message with the values of a run: {HParam or name: value}; Metrics are left to scalars."""
    if not isinstance(hparams, dict):
        raise TypeError(f"hparams takes a dict, found {type(hparams).__name__}")
    values = b""
    for key, value in hparams.items():
        if isinstance(key, Metric):
            continue
        name = key.name if isinstance(key, HParam) else str(key)
        if isinstance(value, bool):
            inner = _proto.field(4, value)
        elif isinstance(value, (int, float)):
            inner = _proto.field(2, float(value))
        else:
            inner = _proto.field(3, str(value))
        values += _proto.field(1, _proto.field(1, name) + _proto.field(2, inner))
    content = _proto.field(3, values)
    return SummaryMessage(
        _proto.summary_value("_hparams_/session_start_info", _proto.metadata("hparams", content))
    )


def text(text: Any, tag: Any = None) -> Any:
    """A Summary message with a text."""
    return SummaryMessage(
        _proto.summary_value(tag or "text", _proto.string_tensor(text), _proto.metadata("text"))
    )
