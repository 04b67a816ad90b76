"""The routes between the stages of a pipeline, and the block in which moves take them.

`stage_transfers.py` sends on the routes. This module imports no part of DTensor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

_between_stages: ContextVar[bool] = ContextVar("between_stages", default=False)


@dataclass(frozen=True)
class Route:
    """One rank that sends, and the ranks that receive, between two placements."""

    source: int
    targets: tuple[int, ...]


routes: dict[str, Route] = {}  # name of a process group -> its route


def is_between_stages() -> bool:
    """Whether the block runs in which moves between placements take routes."""
    return _between_stages.get()


@contextlib.contextmanager
def between_stages(enabled: bool) -> Iterator[None]:
    """In the block, moves between placements take routes, if `enabled`."""
    outer = _between_stages.set(enabled)
    try:
        yield
    finally:
        _between_stages.reset(outer)
