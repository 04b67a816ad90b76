"""new_zeros and its siblings, and Tensor(...): global for a global tensor and inside global_mode."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .._method import own_attribute
from ..sbp import broadcast
from .global_mode import SYMBOLIC, current, off
from .marks import OfSeveralRanks, is_global

NAMES = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor")
# makes a full tensor global on a placement, with an SBP
FromFull = Callable[[torch.Tensor, Any, Any], torch.Tensor]
_plain: dict[Any, Any] = {}  # inside global_mode: the methods that torch.Tensor has outside


def methods(make: FromFull) -> tuple[Callable[..., Any], ...]:
    """Return the methods `NAMES` of global tensors; `make` makes the full tensor global."""
    return tuple(_method(name, make) for name in NAMES)


def _method(name: str, make: FromFull) -> Callable[..., Any]:
    """Return the method `name` of global tensors.

    The result has the tensor's placement and sbp. For a local tensor, it has those of the mode.
    """

    @functools.wraps(getattr(torch.Tensor, name))
    def call(
        self: Any,
        *args: Any,
        placement: Any = None,
        sbp: Any = None,
        requires_grad: bool = False,
        **kwargs: Any,
    ) -> torch.Tensor:
        plain: Callable[..., torch.Tensor] = _plain.get(name) or own_attribute(torch.Tensor, name)
        if current() is SYMBOLIC:
            return plain(self, *args, requires_grad=requires_grad, **kwargs)
        if name in ("new_zeros", "new_ones") and not args and "size" not in kwargs:
            args = (self.shape,)
        like = _local_like(self)
        with off():
            out = plain(like, *args, **kwargs)
        source = _global_source(self)
        if source is not None:
            placement = placement or source.placement
            sbp = _sbp_of_result(source.sbp, out) if sbp is None else sbp
        if placement is not None or sbp is not None:
            out = make(out.to_local() if is_global(out) else out, placement, sbp)
        return out.requires_grad_() if requires_grad else out

    return call


def _global_source(tensor: torch.Tensor) -> Any:
    """Return what has the placement and SBP of new tensors: a global tensor, or else the mode in force."""
    if is_global(tensor):
        return tensor
    return current() if current().enabled else None


def _local_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a local tensor of this dtype and device: the tensor itself if it lies on one rank."""
    if not isinstance(tensor, OfSeveralRanks):
        return tensor
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device)


def _sbp_of_result(nd_sbp: Iterable[Any], out: torch.Tensor) -> tuple[Any, ...]:
    """Return the SBP of a result; broadcast replaces a split along a dimension that it lacks."""
    return tuple(r if r._kind != "split" or r._dim < out.dim() else broadcast for r in nd_sbp)


def _constructor(original: Callable[..., Any], make: FromFull) -> Any:
    def __new__(*args: Any, **kwargs: Any) -> torch.Tensor:
        out, mode = original(*args, **kwargs), current()
        return (
            make(out, mode.placement, mode.sbp)
            if args[0] is torch.Tensor and mode.enabled and not is_global(out)
            else out
        )

    __new__.__oneflow_original__ = original  # type: ignore[attr-defined]
    return staticmethod(__new__)


def begin(make: FromFull) -> None:
    """Install the global methods when the outermost global_mode begins."""
    _plain.update(
        {name: own_attribute(torch.Tensor, name) for name in NAMES}, __new__=torch.Tensor.__dict__["__new__"]
    )
    for name in NAMES:
        setattr(torch.Tensor, name, _method(name, make))
    torch.Tensor.__new__ = _constructor(torch.Tensor.__new__, make)  # type: ignore[method-assign]


def end() -> None:
    """Restore torch's methods when the outermost global_mode ends."""
    for name in NAMES:
        setattr(torch.Tensor, name, _plain.pop(name))
    torch.Tensor.__new__ = _plain.pop("__new__")  # type: ignore[method-assign]
