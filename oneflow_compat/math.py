"""oneflow.math: mathematics of job functions on blobs; Python's own `math` on numbers.

`oneflow.math.sqrt(blob)` and `oneflow.math.sqrt(2.0)` both work, `oneflow.math.pi` is Python's.
"""

from __future__ import annotations

import functools as _functools
import math as _numbers
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from .compatible.single_client import math as _blobs

if _TYPE_CHECKING:
    from collections.abc import Callable


def __getattr__(name: str) -> _Any:
    ours, plain = getattr(_blobs, name, None), getattr(_numbers, name, None)
    if ours is None and plain is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = ours if plain is None else plain if ours is None else _either(ours, plain)
    globals()[name] = value
    return value


def _either(ours: Callable[..., _Any], plain: _Any) -> Callable[..., _Any]:
    @_functools.wraps(ours)
    def function(*args: _Any, **kwargs: _Any) -> _Any:
        if args and all(isinstance(a, (int, float)) for a in args) and not kwargs:
            return plain(*args)
        return ours(*args, **kwargs)

    return function


def __dir__() -> list[str]:
    return sorted({*dir(_blobs), *dir(_numbers)})
