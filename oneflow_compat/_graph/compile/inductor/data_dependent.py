"""Operators that torch's symbolic tensors cannot handle: the shape depends on values, or the symbolic form
refuses what the kernel takes.

The capture knows the lengths and masks that decide these shapes, and guards the program by them
(branch_values.py). Here such an operator becomes one of the same schema, with integers in place of symbols,
that declares the recorded shapes. An operator without a C shim that takes a list of symbols is treated alike:
inductor's C++ wrapper passes such a list as a list of anything, which put each kernel into its own file
(resizing with antialias in SigLIP 2: 287 instead of 100 s of compiling on a busy core).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from ...program.operators import facts_of
from ..known_operators import known_operator
from .shims import no_shim
from .symbols import has_fixed_results

if TYPE_CHECKING:
    from torch.fx import Node

    from ...program.tensor_info import TensorInfo
    from ..known_operators import KnownOperator, KnownResult


aten = torch.ops.aten
_MASKS = torch.bool, torch.uint8


def with_known_shapes(graph: torch.fx.Graph) -> list[KnownOperator]:
    """Replace such operators in the graph of a region, in place. Return [(operator, infos of results)]."""
    replaced = []
    for node in graph.nodes:
        if _needs_known_shapes(node):
            results = node.meta["tensor"]
            if results is None:  # several
                parts = _parts(node)
                results = tuple(parts.get(i) for i in range(len(node.target._schema.returns)))
            replaced.append((node.target, results))
            node.target = known_operator(node.target, results)
    return replaced


def _needs_known_shapes(node: Node) -> bool:
    if facts_of(node.target).needs_recorded_shapes:
        return True
    if node.target is aten.index.Tensor:
        return any(i is not None and i.meta["tensor"].dtype in _MASKS for i in node.args[1])
    return has_fixed_results(node) and no_shim(node.target) and not _is_sparse(node)


def _parts(node: Node) -> dict[int, KnownResult]:
    """Return {index of a result: its record, for a list of tensors a tuple of records}."""
    parts: dict[Any, tuple[Node, TensorInfo | None]] = {
        u.args[1]: (u, u.meta["tensor"]) for u in node.users if u.target is operator.getitem
    }
    return {i: _listed(_parts(part)) if info is None else info for i, (part, info) in parts.items()}


def _listed(parts: dict[int, KnownResult]) -> tuple[KnownResult, ...]:
    return tuple(parts.get(i) for i in range(max(parts, default=-1) + 1))


def _is_sparse(node: Node) -> bool:
    return node.meta["tensor"] is not None and node.meta["tensor"].stride is None
