"""flow.distribute: how a blob is distributed over the devices of its placement.

With one device all distributions mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .scope import (
    consistent_view as consistent_strategy,
)
from .scope import (
    consistent_view_enabled as consistent_strategy_enabled,
)
from .scope import mirrored_view as mirrored_strategy
from .scope import mirrored_view_enabled as mirrored_strategy_enabled

__all__ = [
    "assert_is_valid_distribute",
    "auto",
    "broadcast",
    "consistent_strategy",
    "consistent_strategy_enabled",
    "mirrored_strategy",
    "mirrored_strategy_enabled",
    "split",
]


@dataclass(frozen=True)
class Distribute:
    """ "split" along an axis, "broadcast", or "auto"."""

    strategy: str
    axis: int | None = None


def split(axis) -> Distribute:
    if not isinstance(axis, int):
        raise TypeError(f"distribute.split takes the axis as an int, found {axis!r}")
    return Distribute("split", axis)


def broadcast() -> Distribute:
    return Distribute("broadcast")


def auto() -> Distribute:
    return Distribute("auto")


def assert_is_valid_distribute(distribute):
    """TypeError for anything other than a result of split, broadcast or auto (None and False mean auto)."""
    if distribute is None or distribute is False or isinstance(distribute, Distribute):
        return
    raise TypeError(
        "a distribution is what flow.distribute.split(axis), broadcast() or auto() returns, found"
        f" {distribute!r}"
    )


# --------------------------------------------------------------------------- flow.advanced
# With one device, a blob has one part.
def distribute_clone(x, name=None):
    return (x,)


def distribute_add(xs, name=None):
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def distribute_split(x, axis=0, name=None):
    return (x,)


def distribute_concat(xs, axis=0, name=None):
    return torch.cat(list(xs), axis)


def distribute_map(xs, f, axis=0):
    """f on each device's part of the blobs, joined again along the axis."""
    single = isinstance(xs, torch.Tensor)
    out = f(xs) if single else f(*xs)
    return out
