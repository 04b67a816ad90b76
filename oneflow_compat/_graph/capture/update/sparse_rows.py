"""Optimizers added with is_sparse=True: only the rows that were gathered from a weight change.

As in OneFlow, this applies to weights whose full gradient comes from one gather (embedding, index_select,
gather) and that have no L2 decay. Momentum, moments and decoupled decay of the other rows do not change.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from ...._global.marks import several
from ...._global.tensor import memory_of
from ...program.nested_state import leaves
from ..interfaces import RecordedTensor

if TYPE_CHECKING:
    from torch.optim import Optimizer


aten = torch.ops.aten
lazy: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers added with is_sparse=True
_GATHERED = {aten.embedding_dense_backward.default, aten.index_add.default}


def before_step(optimizer: Any) -> Any:
    """Return [(parameter, its rows with a gradient, {id: (tensor, its value)})] for `after_step`."""
    gathered = []
    for group in optimizer.param_groups:
        decays = group.get("weight_decay") and not group.get("decoupled_weight_decay")
        for p in group["params"]:
            grad = memory_of(p.grad) if p.grad is not None and not several() else None
            if not decays and isinstance(grad, RecordedTensor) and _origin(grad._of_node).target in _GATHERED:
                rows = (grad != 0).flatten(1).any(1).view(-1, *[1] * (p.dim() - 1))
                snapshots = (memory_of(p.detach()), *_states(optimizer, p))
                gathered.append((p, rows, {id(t): (t, t.clone()) for t in snapshots}))
    return gathered


def after_step(optimizer: Optimizer, gathered: Any, begun: Any) -> None:
    """Restore the other rows. `begun`: [(state tensor that the step created, its initial value)]."""
    initial = {id(t): (t, value) for t, value in begun}
    for p, rows, snapshots in gathered:
        created = {id(v): initial[id(v)] for v in _states(optimizer, p) if id(v) in initial}
        for tensor, value in {**snapshots, **created}.values():
            tensor.copy_(torch.where(rows, tensor.detach(), value))


def _origin(node: Any) -> Any:
    while node.target in (aten.detach.default, aten.alias.default):
        node = node.args[0]
    return node


def _states(optimizer: Optimizer, p: torch.Tensor) -> list[Any]:
    return [
        memory_of(v)
        for _, v in leaves(optimizer.state.get(p, {}))
        if isinstance(v, torch.Tensor) and v.shape == p.shape
    ]
