"""While a job function is being defined, `oneflow.X` is the job-function form of X where the two APIs collide."""
from __future__ import annotations

import contextlib
import sys
import threading

from ..._tables.legacy import COLLIDING

_lock = threading.RLock()
_depth = 0
_saved: list = []
_absent = object()


@contextlib.contextmanager
def legacy_forms():
    """Swap the colliding names of the public modules in, and today's back afterwards.

    The swap is seen by every thread; jobs are defined one at a time.
    """
    global _depth
    with _lock:
        if _depth == 0:
            _swap_in()
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1
            if _depth == 0:
                _swap_back()


def _swap_in():
    import importlib

    for public, text in COLLIDING.items():
        module = sys.modules.get(public)
        if module is None:
            continue
        relative = public.partition(".")[2]
        ours = importlib.import_module(__package__ + ("." + relative if relative else ""))
        for name in text.split():
            _saved.append((module, name, vars(module).get(name, _absent)))
            setattr(module, name, getattr(ours, name))


def _swap_back():
    while _saved:
        module, name, value = _saved.pop()
        if value is _absent:
            delattr(module, name)
        else:
            setattr(module, name, value)
