"""ZeRO in a graph over several ranks: optimizer state and gradients of whole parameters, split over the ranks
that hold them.

While `splitting` is on, a tensor made like a large whole one (an optimizer's state) is split along dimension
0, `.grad` of
such a parameter is summed into this rank's part, and an in-place operator that mixes a whole tensor with
parts computes this
rank's part and gathers it. Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
Parameter
Models" (SC 2020), stages 1 and 2.
"""

from __future__ import annotations

import contextlib

import torch

from .. import sbp
from .collectives import nested
from .tensor import OfSeveralRanks

aten = torch.ops.aten
_LIKE = {aten.zeros_like.default, aten.ones_like.default, aten.full_like.default, aten.empty_like.default}
_least: list = []  # elements that a part must have at least, for each `splitting` that is on


@contextlib.contextmanager
def splitting(least: int):
    """Split what has parts of `least` elements or more."""
    _least.append(least)
    try:
        yield
    finally:
        _least.pop()


def rules(tensor):
    """The rules of the gradient and the state of a parameter: split(0) along the first dimension of its
    placement, or its own.
    """
    if _least and tensor.dim() and all(r._kind == "broadcast" for r in tensor._of_sbp):
        ranks = tensor._of_placement.hierarchy[0]
        if ranks > 1 and tensor.shape[0] % ranks == 0 and tensor.numel() // ranks >= _least[-1]:
            return (sbp.split(0), *tensor._of_sbp[1:])
    return tensor._of_sbp


def call(func, args, kwargs):
    """The result of an operator that has to do with parts; NotImplemented of another."""
    first = args[0] if args else None
    if not _least or not isinstance(first, OfSeveralRanks):
        return NotImplemented
    wanted = rules(first)
    if wanted == first._of_sbp:
        return NotImplemented
    with nested():
        return _on_parts(func, first, wanted, args, kwargs)


def _on_parts(func, first, wanted, args, kwargs):
    if func in _LIKE:
        return func(first.to_global(sbp=wanted), *args[1:], **kwargs)
    if not func._schema.is_mutable or not any(
        isinstance(t, OfSeveralRanks) and t._of_sbp == wanted for t in (*args[1:], *kwargs.values())
    ):
        return NotImplemented
    part = first.to_global(sbp=wanted)
    func(part, *args[1:], **kwargs)
    return first.copy_(part.to_global(sbp=first._of_sbp))
