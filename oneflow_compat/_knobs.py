"""Runtime knobs that are checked and remembered, and have no effect here (`_tables/knobs.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._tables.knobs import KNOBS

_values: dict[str, object] = {}


def knob(path: str) -> Callable[..., None]:
    """The setter of one row of KNOBS; also callable without a value where OneFlow has a default."""
    default, value_type, why = KNOBS[path]
    name = path.rpartition(".")[2]

    def setter(val: Any = default) -> None:
        if (
            value_type is bool
            and not isinstance(val, (bool, int))
            or value_type is int
            and (isinstance(val, bool) or not isinstance(val, int))
        ):
            raise TypeError(
                f"oneflow.{path}(val) takes {value_type.__name__}, found {type(val).__name__} {val!r}"
            )
        _values[path] = value_type(val)

    setter.__name__ = setter.__qualname__ = name
    setter.__doc__ = (
        f"Remembered, without effect: {why}.\n\nTypeError unless `val` is of type {value_type.__name__}."
    )
    return setter


def read(path: str) -> Any:
    """The value last set, or the default."""
    return _values.get(path, KNOBS[path][0])


def setters(prefix: str) -> dict[str, Callable[..., None]]:
    """{name: setter} of the knobs directly under `prefix`."""
    return {p.rpartition(".")[2]: knob(p) for p in KNOBS if p.rpartition(".")[0] == prefix}
