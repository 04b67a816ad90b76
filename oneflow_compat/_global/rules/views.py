"""Views of global tensors that do not share memory with their base.

DTensor moves a sharded tensor if the view needs a replicated one. Such a view remembers its base. Writes to
the view are repeated on the base, and the view is refreshed after writes to the base.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..failures import transfer
from ..marks import OfSeveralRanks
from ..mesh import is_member
from ..shards import shard_of


class Origin(NamedTuple):
    """The base of a copied view, the function that makes the view, and autograd's count of writes then."""

    base: OfSeveralRanks
    view: Callable[[torch.Tensor], torch.Tensor]
    version: int


def remember(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Record the base in those results of a view function that are copies."""
    base = args[0]
    if not isinstance(base, OfSeveralRanks) or not is_member(base.device_mesh) or base.is_inference():
        return
    several = isinstance(out, (list, tuple))
    for i, copy in enumerate(out if several else [out]):
        if copy is not base and (base._origin is not None or not _share_memory(copy, base)):
            view = functools.partial(_view, func, args[1:], kwargs, i if several else None)
            copy._origin = Origin(base, view, base._version)


def _view(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    index: int | None,
    full: torch.Tensor,
) -> torch.Tensor:
    """Return the view of a tensor, or this one of its views."""
    out: Any = func(full, *args, **kwargs)
    view: torch.Tensor = out if index is None else out[index]
    return view


def _share_memory(a: OfSeveralRanks, b: OfSeveralRanks) -> bool:
    return bool(a._local_tensor.untyped_storage()._cdata == b._local_tensor.untyped_storage()._cdata)


def write_through(copy: Any) -> None:
    """Write the values of a copied view to its base."""
    origin = copy._origin
    if origin is not None:
        full = _all_of(origin.base)
        origin.view(full).copy_(copy._own.full_tensor())
        _fill(origin.base, full)
        write_through(origin.base)


def refresh(copy: Any) -> None:
    """Update a copied view if its base was written since."""
    origin = copy._origin
    if copy._version != origin.version:
        copy._origin = origin._replace(version=copy._version)
        with torch.no_grad():
            _fill(copy, origin.view(_all_of(origin.base)))


def _all_of(base: Any) -> torch.Tensor:
    with transfer("a view of a global tensor"):
        full: torch.Tensor = base._dtensor.full_tensor()
    return full.contiguous() if base.is_contiguous() else full


def _fill(tensor: Any, full: torch.Tensor) -> None:
    own = tensor._own
    own._local_tensor.copy_(shard_of(full, own.device_mesh, own.placements))
