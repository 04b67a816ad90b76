"""Python's garbage collector during a capture."""

import contextlib
import gc
from collections.abc import Iterator

_pauses: list[bool] = []  # whether the collector ran before each pause that has not ended


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """Pause garbage collection.

    A capture, its passes and the loading of a compiled program create many objects that stay alive.
    Collecting among them doubles the time of a capture. A capture asks the collector who holds an object and
    what build() made. The collector names no frozen objects, so what the caller froze (`gc.freeze()`) is
    unfrozen.
    """
    gc.unfreeze()
    _pauses.append(gc.isenabled())
    gc.disable()
    try:
        yield
    finally:
        if _pauses.pop():
            gc.enable()


def is_on_for_caller() -> bool:
    """Whether the garbage collector is on, apart from the pauses."""
    return _pauses[0] if _pauses else gc.isenabled()


@contextlib.contextmanager
def rare_collection() -> Iterator[None]:
    """Collect garbage rarely: a compilation creates many objects that stay alive until it ends.

    With Python's own thresholds the collections take 0.1 to 0.2 of the compiler's time in this process. One
    collection of all objects takes 0.2 seconds, which a training loop under `auto` would wait for. A pause is
    interrupted, because compilations also create much garbage.
    """
    before, is_interrupted = gc.get_threshold(), bool(_pauses) and _pauses[0] and not gc.isenabled()
    gc.set_threshold(max(before[0], 100_000) if before[0] else 0, *before[1:])
    if is_interrupted:
        gc.enable()
    try:
        yield
    finally:
        if is_interrupted:
            gc.disable()
        gc.set_threshold(*before)
