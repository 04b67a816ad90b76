"""Optimizer updates of global tensors: one call for each placement, and each rank on its own shards."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch.distributed.tensor import DeviceMesh

from ..global_dtensor import GlobalDTensor, full_tensor, map_tensors, redistribute


def by_placement(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator over lists, as optimizers use them: one call for the tensors of each placement."""
    count = len(args[0])
    by_mesh: dict[DeviceMesh, list[int]] = {}
    for i, t in enumerate(args[0]):
        by_mesh.setdefault(t.device_mesh, []).append(i)
    results: list[Any] = [None] * count
    for indices in by_mesh.values():
        pick = functools.partial(_select, indices, count)
        out = func(*map(pick, args), **{k: pick(v) for k, v in kwargs.items()})
        for i, o in zip(indices, out or ()):
            results[i] = o
    return results if any(r is not None for r in results) else None


def _select(indices: list[int], count: int, argument: Any) -> Any:
    """Return the entries of an argument that is a list with an entry for each tensor."""
    is_list = isinstance(argument, (list, tuple)) and len(argument) == count
    return [argument[i] for i in indices] if is_list else argument


def states_follow_parameters(parameters: Sequence[Any], _: Any, *states: Any) -> bool:
    """Whether every state of an optimizer has its parameter's placements.

    Then each rank can update its own shards.
    """
    per_parameter = [s for s in states if isinstance(s, (list, tuple))]
    return not any(p.is_partial() for t in parameters for p in t.placements) and all(
        not isinstance(s, GlobalDTensor) or s.placements == t.placements
        for state in per_parameter
        for t, s in zip(parameters, state)
    )


def update_shards(
    func: Any, parameters: Sequence[Any], grads: Sequence[Any], *states: Any, **scalars: Any
) -> Any:
    """Update each rank's shards of the parameters with their shards of the gradients."""
    part = lambda a: (
        [t._local_tensor if isinstance(t, GlobalDTensor) else t for t in a]
        if isinstance(a, (list, tuple))
        else a
    )
    grads = [redistribute(g, t._of_placement, t._of_sbp) for t, g in zip(parameters, grads)]
    return func(*map(part, (parameters, grads, *states)), **map_tensors(full_tensor, scalars))
