"""Find the operator from which on a compiled region differs from the captured operators.

Prefixes of the region are compiled and compared, by bisection. What a prefix computes for later operators is
its result. So the operator that is named is the last one of the shortest prefix found to be wrong.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..copies import CallState
from .proof import compared
from .runs import Reference

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from ...program.program import CompiledFunction

# (graph, constants, graph inputs as in the region) -> the compiled function
CompilePrefix = Callable[["Graph", "dict[str, torch.Tensor]"], "CompiledFunction"]

_SECONDS = 120.0  # time limit of the search

aten = torch.ops.aten
_UNWRITTEN = {
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.empty_permuted.default,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
}


def first_difference(reference: Reference, compile_prefix: CompilePrefix, state: CallState) -> int | None:
    """Return the position of the operator among the nodes of the region, or None if no prefix is wrong.

    `state`: the inputs before the call.
    """
    end = time.perf_counter() + _SECONDS
    calls = [i for i, n in enumerate(reference.graph.nodes) if n.op == "call_function"]
    low, high = 0, len(calls)  # a prefix of `low` operators is right, one of `high` operators is wrong
    if not calls or not _is_wrong(reference, calls[-1], compile_prefix, state):
        return None
    while high - low > 1 and time.perf_counter() < end:
        middle = (low + high) // 2
        if _is_wrong(reference, calls[middle - 1], compile_prefix, state):
            high = middle
        else:
            low = middle
    return calls[high - 1]


def _is_wrong(reference: Reference, last: int, compile_prefix: CompilePrefix, state: CallState) -> bool:
    graph = prefix(reference.graph, last)
    part = Reference(graph, reference.constants)
    inputs = state.fresh_values(range(len(state.values)))
    try:
        function = compile_prefix(graph, reference.constants)
        return not compared(function, part, inputs).proof.holds
    except Exception:
        return True  # the prefix does not compile


def prefix(graph: Graph, last: int) -> Graph:
    """Return the graph up to the node at a position, with all values that later nodes use as results.

    Memory that no operator has written yet is zero, because its values would differ in each run.
    """
    nodes = list(graph.nodes)
    kept, later = nodes[: last + 1], set(nodes[last + 1 :])
    results = [
        node
        for node in kept
        if node.op == "call_function" and _is_tensor(node) and (node is nodes[last] or _is_used(node, later))
    ]
    new = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in [*kept, *(n for n in later if n.op == "placeholder")]:
        copies[node] = new.node_copy(node, copies.__getitem__)
        copies[node].meta = dict(node.meta)
        if node.target in _UNWRITTEN:
            new.call_function(aten.zero_.default, (copies[node],))
    new.output(tuple(copies[n] for n in results))
    return new


def _is_used(node: Node, later: set[Node]) -> bool:
    return any(user in later for user in node.users)


def _is_tensor(node: Node) -> bool:
    return node.meta.get("tensor") is not None


def described(graph: Graph, position: int) -> str:
    """Return the operator at a position and the line of the user's code that recorded it."""
    node: Any = list(graph.nodes)[position]
    while node.target is operator.getitem:  # a node that takes one of several results
        node = node.args[0]
    location: Sequence[Any] | None = node.meta.get("location")
    phase, module = node.meta.get("phase"), node.meta.get("module")
    parts = [f"{node.target} ({node.name})" if node.op == "call_function" else node.name]
    if location:
        parts.append(f"of {location[0]}:{location[1]} in {location[2]}()")
    if phase or module:
        parts.append(f"({': '.join(filter(None, (phase, module)))})")
    return " ".join(parts)
