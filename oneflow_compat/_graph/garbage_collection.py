"""Python's garbage collector during a capture."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """Pause garbage collection.

    A capture, its passes and the aten backend create many objects that stay alive. Collecting among them
    doubles the time of a capture.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
