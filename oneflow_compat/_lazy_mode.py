"""Whether a graph is being traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ._active import in_build

_lazy: list[bool] = []  # the modes that guard() has set, the innermost last


def is_enabled() -> bool:
    """True inside guard(True), and in the build() of a graph."""
    if _lazy:
        return _lazy[-1]
    return in_build()


@contextlib.contextmanager
def guard(enabled: bool) -> Iterator[None]:
    """Mark the block as traced (or not); operators run as they are."""
    _lazy.append(bool(enabled))
    try:
        yield
    finally:
        _lazy.pop()
