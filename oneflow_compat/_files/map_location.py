"""The devices of loaded tensors: map_location and global_src_rank of oneflow.load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _processes, sbp
from .._file_safety.errors import CheckpointError
from .._global.collectives import from_rank
from .._global.placement import placement
from .._global.tensor import make_global


def is_placement(map_location: object) -> bool:
    return type(map_location).__name__ == "placement"


def mover(map_location: Any) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return a function that moves one loaded tensor, or None."""
    if map_location is None:
        return None
    if is_placement(map_location):
        broadcast = [sbp.broadcast] * len(map_location.hierarchy)
        return lambda tensor: make_global(tensor, map_location, broadcast, is_full=True)
    if isinstance(map_location, (str, torch.device)):
        device = torch.device(map_location)
        return lambda tensor: tensor.to(device)
    if isinstance(map_location, dict):
        return lambda tensor: tensor.to(map_location.get(str(tensor.device), tensor.device))
    if callable(map_location):

        def move(tensor: torch.Tensor) -> torch.Tensor:
            moved = map_location(tensor.untyped_storage(), str(tensor.device))
            return tensor if moved is None else tensor.to(moved.device)

        return move
    raise TypeError(
        f"load: map_location is a device, a placement, a dict or a callable, found {map_location!r}"
    )


def spread(read: Callable[[], object], rank: int, map_location: object) -> object:
    """Return on every rank the object that `rank` reads, with its tensors global on that rank. If `rank`
    raises, every rank raises, so that no rank waits forever.
    """
    obj = read() if _processes.get_world_size() == 1 else from_rank(rank, read, "load")
    if is_placement(map_location):
        return obj
    source = placement("cpu", [rank])
    return map_tensors(obj, lambda tensor: make_global(tensor, source, sbp.broadcast, is_full=True))


def map_tensors(obj: object, change: Callable[[torch.Tensor], torch.Tensor]) -> object:
    """Return `obj` with each tensor in its containers changed.

    A tensor in several containers is changed once.
    """
    done: dict[int, tuple[Any, ...]] = {}

    def mapped(value: Any) -> Any:
        if not isinstance(value, torch.Tensor | dict | list | tuple):
            return value
        if id(value) not in done:
            done[id(value)] = value, value  # within itself, a container is not replaced
            done[id(value)] = value, changed(value)
        return done[id(value)][1]

    def changed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, dict):
            for key in value:
                value[key] = mapped(value[key])
            return value
        if isinstance(value, list):
            value[:] = [mapped(item) for item in value]
            return value
        items = [mapped(item) for item in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return tuple(items) if type(value) is tuple else value

    try:
        return mapped(obj)
    except RecursionError:
        raise CheckpointError(
            "load: the containers of the file are nested too deep to place their tensors; load it without"
            " map_location"
        ) from None
