"""allow_fuse_add_to_output and allow_fuse_cast_scale: compute a result in memory that is no longer needed.

EXACT. inductor fuses such chains into one kernel anyway. These passes save the aten backend an allocation and
a pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ..program import is_view, written_args

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.fx import Node

    from ..program import Program


aten = torch.ops.aten


def add_to_output(program: Program) -> Program:
    """Replace add(a, b) by add_(a, b), if a is a fresh result that dies here.

    a must have the dtype and layout of the result.
    """
    return _in_first(program, {aten.add.Tensor: aten.add_.Tensor}, lambda operand: True)


def cast_scale(program: Program) -> Program:
    """Let a cast and the multiplication after it share the memory of the cast's result."""
    return _in_first(
        program,
        {aten.mul.Tensor: aten.mul_.Tensor, aten.mul.Scalar: aten.mul_.Scalar},
        lambda operand: operand.target is aten._to_copy.default,
    )


def _in_first(
    program: Program, in_place: dict[OpOverload, OpOverload], takes: Callable[[Node], bool]
) -> Program:
    graph = program.graph
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in in_place:
            continue
        operand = node.args[0]
        if (
            not isinstance(operand, torch.fx.Node)
            or not _fresh(operand)
            or not takes(operand)
            or operand is node.args[1]
        ):
            continue
        if operand.meta.get("tensor") is None or operand.meta["tensor"] != node.meta.get("tensor"):
            continue
        if _last_use(operand, order) != order[node]:
            continue
        with graph.inserting_before(node):
            new = graph.call_function(in_place[node.target], node.args, node.kwargs)
        new.meta.update(node.meta)
        order[new] = order[node]
        node.replace_all_uses_with(new)
        graph.erase_node(node)
    return program


def _fresh(node: Node) -> bool:
    """Return True for a result in a fresh buffer: no input, no view, and not one of several results."""
    return (
        node.op == "call_function"
        and not is_view(node)
        and not written_args(node)
        and isinstance(node.target, torch._ops.OpOverload)
    )


def _last_use(node: Node, order: dict[Node, int]) -> int:
    """Return the position of the last use of a node or of anything that shares its memory."""
    last = -1
    for user in node.users:
        if user.op == "output":
            return len(order) + 1
        last = max(last, order[user])
        if (
            is_view(user)
            or node in written_args(user)
            or any(
                r.alias_info is not None
                for r in getattr(getattr(user.target, "_schema", None), "returns", ())
            )
        ):
            last = max(last, _last_use(user, order))
    return last
