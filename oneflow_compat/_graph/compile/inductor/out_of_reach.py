"""What a region without writes cannot express: writes and views whose meaning depends on where elements lie
in memory. A program with one of them runs as captured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ...program.program import is_view, node_argument, written_args
from ...program.random_functions import replays_random_numbers
from .samplers import samples_into_gaps

if TYPE_CHECKING:
    from torch.fx import Graph, Node

aten = torch.ops.aten
_STRIDED = (aten.as_strided.default, aten.as_strided_scatter.default)


def out_of_reach(graph: Graph) -> str | None:
    """Return what the graph does that a region cannot express, or None."""
    return next((reason for rule, reason in _RULES.items() if rule(graph)), None)


def not_compiled(graph: Graph) -> list[str]:
    """Return the line of graph.explain() about a program that runs on aten as a whole."""
    reason = out_of_reach(graph)
    return [] if reason is None else [f"not compiled, because it {reason}"]


def writes_expanded(graph: Graph) -> bool:
    """Whether a write has an expanded target, of which eager mode writes the one element in memory."""
    return any(_is_expanded(value) for node in _calls(graph) for value in written_args(node))


def writes_windows(graph: Graph) -> bool:
    """Whether a write goes through unfold(). A region without writes loses the elements in between, as
    torch.compile does.
    """
    written = _written_views(graph)
    return any(node.target is aten.unfold.default and node in written for node in graph.nodes)


def writes_over_operands(graph: Graph) -> bool:
    """Whether an operator writes an operand that it reads in another order: z.masked_scatter_(mask, z).
    The kernel reads what it has already written.
    """
    for node in _calls(graph):
        written = written_args(node)
        if not written or node.target is aten.copy_.default or torch.Tag.pointwise in node.target.tags:
            continue
        others = _operands(node)
        for value in written:
            others.remove(value)
        if not {_base(value) for value in written}.isdisjoint(map(_base, others)):
            return True
    return False


def leaves_memory(graph: Graph) -> bool:
    """Whether as_strided() may leave the elements of its argument, which the kernel tests. An offset counts
    from those of the tensor that the argument is a view of.
    """
    return any(_leaves_memory(node) for node in graph.nodes if node.target in _STRIDED)


def strides_over_memory(graph: Graph) -> bool:
    """Whether as_strided() has an offset into an input, which counts from the start of the storage and not
    from the first element of the input, or takes a view and is written in place.
    """
    written = _written_views(graph)
    for node in graph.find_nodes(op="call_function", target=aten.as_strided.default):
        *views, base = _chain(node_argument(node, 0))
        has_offset = len(node.args) > 3 and node.args[3] is not None
        if has_offset and base.op == "placeholder" or views and node in written:
            return True
    return False


_RULES = {
    replays_random_numbers: "samples from a generator other than torch's default one, or reads or sets the"
    " state of one, as recomputed dropout does",
    samples_into_gaps: "samples into a tensor with gaps in its memory",
    writes_expanded: "writes into an expanded tensor",
    writes_windows: "writes through unfold()",
    writes_over_operands: "writes a tensor that the same operator reads in another order",
    leaves_memory: "calls as_strided() beyond the memory of a tensor",
    strides_over_memory: "calls as_strided() on a view that it writes, or with an offset into an input",
}


def _calls(graph: Graph) -> Iterator[Any]:
    return (node for node in graph.nodes if node.op == "call_function")


def _chain(node: Node) -> Iterator[Node]:
    """Yield a node, the views that it was made from, and the tensor that they show."""
    while node.op == "call_function" and is_view(node):
        yield node
        node = node_argument(node, 0)
    yield node


def _base(node: Node) -> Node:
    *_, base = _chain(node)
    return base


def _operands(node: Node) -> list[Node]:
    return [
        v for v in torch.utils._pytree.tree_leaves((node.args, node.kwargs)) if isinstance(v, torch.fx.Node)
    ]


def _written_views(graph: Graph) -> set[Node]:
    return {view for node in _calls(graph) for value in written_args(node) for view in _chain(value)}


def _is_expanded(node: Node) -> bool:
    """Whether several elements of a tensor lie in the same memory."""
    info = node.meta.get("tensor")
    if info is None or info.stride is None:
        return False
    return any(step == 0 and size != 1 for size, step in zip(info.shape, info.stride))


def _leaves_memory(node: Node) -> bool:
    argument = node_argument(node, 0)
    layout: Any = node.args[1 if node.target is _STRIDED[0] else 2 :]
    size, stride, *offset = layout
    start = offset[0] if offset and offset[0] is not None else 0
    source = (_base(argument) if start else argument).meta["tensor"]
    numbers: Any = [*source.shape, *source.stride, *size, *stride, start]
    if any(type(n) is not int for n in numbers):
        return True
    end = start + _extent(size, stride)
    return 0 not in size and (min(start, *stride, 0) < 0 or end > _extent(source.shape, source.stride))


def _extent(shape: Any, stride: Any) -> int:
    """Return the number of elements from the first one of a tensor to its last one in memory."""
    return 1 + sum((n - 1) * step for n, step in zip(shape, stride)) if 0 not in shape else 0
