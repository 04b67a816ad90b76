"""Replace an attribute while a block runs, and put it back on any exception."""

from __future__ import annotations

import contextlib


@contextlib.contextmanager
def patched(owner, name, make):
    original = getattr(owner, name)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)
