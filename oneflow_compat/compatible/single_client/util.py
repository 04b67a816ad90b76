"""flow.util."""

from __future__ import annotations

import itertools

_numbers = itertools.count()


def unique_str(prefix):
    """A string with this prefix that was not given out before."""
    return f"{prefix}{next(_numbers)}"


UniqueStr = unique_str  # the name of oneflow.python.framework.id_util
