"""Is a graph being traced?"""
import contextlib

_lazy = []  # what guard() says, innermost last


def is_enabled() -> bool:
    """True inside guard(True), and in the build() of a graph."""
    if _lazy:
        return _lazy[-1]
    from .._graph.capture import capturing

    return capturing()


@contextlib.contextmanager
def guard(enabled: bool):
    """Mark the block as traced (or not); operators run as they are."""
    _lazy.append(bool(enabled))
    try:
        yield
    finally:
        _lazy.pop()
