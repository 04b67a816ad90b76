"""ZeRO in a graph over several ranks: sharded optimizer state and gradients of replicated parameters.

While `splitting` is on, three things change. A tensor made like a large replicated one (an optimizer's state)
is sharded along dimension 0. The `.grad` of such a parameter is summed into this rank's shard. An in-place
operator that mixes a replicated tensor with shards computes this rank's shard and gathers the result.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (SC 2020),
stages 1 and 2. Stage 3 is in stored_shards.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .. import sbp
from .collectives import nested
from .marks import Global, OfSeveralRanks

aten = torch.ops.aten
LIKE = {aten.zeros_like.default, aten.ones_like.default, aten.full_like.default, aten.empty_like.default}
_least: list[Any] = []  # minimal elements of a shard, for each `splitting` that is on


@contextlib.contextmanager
def splitting(least: int | None) -> Iterator[None]:
    """Shard tensors whose shards have at least `least` elements; None shards nothing."""
    if least is None:
        yield
        return
    _least.append(least)
    try:
        yield
    finally:
        _least.pop()


def is_splitting() -> bool:
    """Whether tensors are sharded: a graph updates its parameters."""
    return bool(_least)


def sharded_sbp(tensor: Global) -> tuple[sbp.sbp, ...]:
    """Return the sbp of the gradient and the state of a parameter.

    It is split(0) along the first dimension of the placement, or the parameter's own sbp.
    """
    if _least and tensor.dim() and all(r._kind == "broadcast" for r in tensor._of_sbp):
        ranks = tensor._of_placement.hierarchy[0]
        if ranks > 1 and tensor.shape[0] % ranks == 0 and tensor.numel() // ranks >= _least[-1]:
            return (sbp.split(0), *tensor._of_sbp[1:])
    return tensor._of_sbp


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of an operator that meets shards, or NotImplemented for other operators."""
    target = args[0] if args else None
    if not _least or not isinstance(target, OfSeveralRanks):
        return NotImplemented
    sharded = sharded_sbp(target)
    if sharded == target._of_sbp:
        return NotImplemented
    with nested():
        return _on_parts(func, target, sharded, args, kwargs)


def _on_parts(
    func: Any, target: Any, sharded: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if func in LIKE:
        return func(target.to_global(sbp=sharded), *args[1:], **kwargs)
    if not func._schema.is_mutable or not any(
        isinstance(t, OfSeveralRanks) and t._of_sbp == sharded for t in (*args[1:], *kwargs.values())
    ):
        return NotImplemented
    part = target.to_global(sbp=sharded)
    func(part, *args[1:], **kwargs)
    return target.copy_(part.to_global(sbp=target._of_sbp))
