"""Whether a graph is being traced."""

import contextlib

from ._active import capturing

_lazy = []  # what guard() says, innermost last


def is_enabled() -> bool:
    """True inside guard(True), and in the build() of a graph."""
    if _lazy:
        return _lazy[-1]
    return capturing()


@contextlib.contextmanager
def guard(enabled: bool):
    """Mark the block as traced (or not); operators run as they are."""
    _lazy.append(bool(enabled))
    try:
        yield
    finally:
        _lazy.pop()
