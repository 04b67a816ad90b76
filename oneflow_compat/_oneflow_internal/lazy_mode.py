"""Is a graph being traced?"""
import contextlib
import sys

_lazy = []  # what guard() says, innermost last


def is_enabled() -> bool:
    """True inside guard(True), and in the build() of a graph."""
    if _lazy:
        return _lazy[-1]
    capture = sys.modules.get("oneflow._graph.capture.capture")
    return capture is not None and capture.capturing()


@contextlib.contextmanager
def guard(enabled: bool):
    """Mark the block as traced (or not); operators run as they are."""
    _lazy.append(bool(enabled))
    try:
        yield
    finally:
        _lazy.pop()
