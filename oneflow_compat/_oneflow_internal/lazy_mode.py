"""Is a graph being traced?"""
import contextlib

_lazy = [False]


def is_enabled() -> bool:
    return _lazy[-1]


@contextlib.contextmanager
def guard(enabled: bool):
    """Mark the block as traced (or not); operators run as they are."""
    _lazy.append(bool(enabled))
    try:
        yield
    finally:
        _lazy.pop()
