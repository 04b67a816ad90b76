"""new_zeros and its siblings, and Tensor(...): global for a global tensor and inside global_mode."""

from __future__ import annotations

import contextlib
import functools

import torch

from ..sbp import broadcast
from .global_mode import OFF, SYMBOLIC, current, stack

NAMES = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor")
_plain: dict = {}  # inside global_mode: the methods that torch.Tensor has outside


@contextlib.contextmanager
def _pushed(mode):
    stack.append(mode)
    try:
        yield
    finally:
        stack.pop()


def _off():
    return _pushed(OFF)


def symbolic_kernels():
    """Use torch's own new_empty and its siblings of a global tensor in the block.

    torch's symbolic kernels run in it, which may be inside global_mode.
    """
    return _pushed(SYMBOLIC) if stack else contextlib.nullcontext()


def outside_mode(function):
    """Wrap `function` so that it runs outside of global_mode: torch's own code makes ordinary tensors."""

    @functools.wraps(function)
    def call(*args):
        if not stack:
            return function(*args)
        with _off():
            return function(*args)

    return call


def method(name):
    """Return the method `name` of global tensors.

    The result has the tensor's placement and sbp. For a local tensor, it has those of the mode.
    """

    @functools.wraps(getattr(torch.Tensor, name))
    def call(self, *args, placement=None, sbp=None, requires_grad=False, **kwargs):
        from .tensor import OfSeveralRanks, is_global, make_global

        own, plain = is_global(self), _plain.get(name) or getattr(torch.Tensor, name)
        if current() is SYMBOLIC:
            return plain(self, *args, requires_grad=requires_grad, **kwargs)
        like = (
            torch.empty(0, dtype=self.dtype, device=self.device) if isinstance(self, OfSeveralRanks) else self
        )
        if name in ("new_zeros", "new_ones") and not args and "size" not in kwargs:
            args = (self.shape,)
        with _off():
            out = plain(like, *args, **kwargs)
        if own or current().enabled:
            placement = placement or (self.placement if own else current().placement)
            sbp = (
                sbp
                if sbp is not None
                else tuple(
                    r if r._kind != "split" or r._dim < out.dim() else broadcast
                    for r in (self.sbp if own else current().sbp)
                )
            )
        if placement is not None or sbp is not None:
            out = make_global(out.to_local() if is_global(out) else out, placement, sbp, whole=True)
        return out.requires_grad_() if requires_grad else out

    return call


def _constructor(original):
    def __new__(*args, **kwargs):
        from .tensor import is_global, make_global

        out, mode = original(*args, **kwargs), current()
        return (
            make_global(out, mode.placement, mode.sbp, whole=True)
            if args[0] is torch.Tensor and mode.enabled and not is_global(out)
            else out
        )

    __new__.__oneflow_original__ = original
    return staticmethod(__new__)


def begin():
    """Install the global methods when the outermost global_mode begins."""
    _plain.update(
        {name: getattr(torch.Tensor, name) for name in NAMES}, __new__=torch.Tensor.__dict__["__new__"]
    )
    for name in NAMES:
        setattr(torch.Tensor, name, method(name))
    torch.Tensor.__new__ = _constructor(torch.Tensor.__new__)


def end():
    """Restore torch's methods when the outermost global_mode ends."""
    for name in NAMES:
        setattr(torch.Tensor, name, _plain.pop(name))
    torch.Tensor.__new__ = _plain.pop("__new__")
