"""flow.distribute: how a blob is distributed over the devices of its placement.

With one device all distributions mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .scope import (
    consistent_view as consistent_strategy,
)
from .scope import (
    consistent_view_enabled as consistent_strategy_enabled,
)
from .scope import mirrored_view as mirrored_strategy
from .scope import mirrored_view_enabled as mirrored_strategy_enabled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


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


def split(axis: str | int) -> Distribute:
    if not isinstance(axis, int):
        raise TypeError(f"distribute.split takes the axis as an int, found {axis!r}")
    return Distribute("split", axis)


def broadcast() -> Distribute:
    return Distribute("broadcast")


def auto() -> Distribute:
    return Distribute("auto")


def assert_is_valid_distribute(distribute: Distribute | str | bool | None) -> None:
    """TypeError for anything other than a result of split, broadcast or auto (None and False mean auto)."""
    if distribute is None or distribute is False or isinstance(distribute, Distribute):
        return
    raise TypeError(
        "a distribution is what flow.distribute.split(axis), broadcast() or auto() returns, found"
        f" {distribute!r}"
    )


# --------------------------------------------------------------------------- flow.advanced
# With one device, a blob has one part.
def distribute_clone(x: torch.Tensor, name: str | None = None) -> tuple[torch.Tensor, ...]:
    return (x,)


def distribute_add(xs: Sequence[torch.Tensor], name: str | None = None) -> torch.Tensor:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def distribute_split(x: torch.Tensor, axis: int = 0, name: str | None = None) -> tuple[torch.Tensor, ...]:
    return (x,)


def distribute_concat(xs: Sequence[torch.Tensor], axis: int = 0, name: str | None = None) -> torch.Tensor:
    return torch.cat(list(xs), axis)


def distribute_map(xs: torch.Tensor, f: Callable[..., Any], axis: int = 0) -> torch.Tensor:
    """f on each device's part of the blobs, joined again along the axis."""
    single = isinstance(xs, torch.Tensor)
    out = f(xs) if single else f(*xs)
    return out
