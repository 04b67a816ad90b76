"""What a region without writes cannot express: writes and views whose meaning depends on where elements lie
in memory. A program with one of them runs as captured.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ...program.operators import is_written
from ...program.program import is_view, node_argument, written_args
from ...program.random_functions import replays_random_numbers
from .samplers import samples_into_gaps

if TYPE_CHECKING:
    from torch.fx import Graph, Node

aten = torch.ops.aten
_RENAMING = (aten.detach.default, aten.alias.default)
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
    """Whether an operator writes an operand that it reads in another order: z.masked_scatter_(mask, z), or
    z.mul_(z[:, :1].expand(4, 4)). The kernel reads what it has already written.
    """
    for node in _calls(graph):
        written = written_args(node)
        if not written:
            continue
        others = _operands(node)
        for value in written:
            others.remove(value)
        keeps_order = node.target is aten.copy_.default or torch.Tag.pointwise in node.target.tags
        targets: dict[Any, list[Node]] = {}
        for value in written:
            targets.setdefault(_memory(value), []).append(value)
        for other in others:
            for value in targets.get(_memory(other), ()):
                if not (keeps_order and _in_one_order(value, other)):
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
        # the form without writes has a view in place of _unsafe_view
        is_view_there = bool(views) or base.target is aten._unsafe_view.default
        has_offset = len(node.args) > 3 and node.args[3] is not None
        if has_offset and base.op == "placeholder" or is_view_there and node in written:
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
    while True:
        if node.op == "call_function" and is_view(node) and not _is_result(node):
            yield node
        elif not _is_written_argument(node):
            break
        node = node_argument(node, 0)
    yield node


def _is_result(node: Node) -> bool:
    """Whether a node is one of several results of an operator that makes no views."""
    return node.target is operator.getitem and not is_view(node_argument(node, 0))


def _is_written_argument(node: Node) -> bool:
    """Whether the result is the first argument, which the operator writes."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or len(schema.returns) != 1:
        return False
    return is_written(schema.returns[0]) and is_written(schema.arguments[0])


def _in_one_order(written: Node, other: Node) -> bool:
    """Whether an operator that writes one view element by element reads another view of the same tensor in
    that order, or reads nothing of what it writes.
    """
    target, source = _without_values(written), _without_values(other)
    if target is None or source is None:
        return _without_renaming(written) is _without_renaming(other)
    source = source.expand(target.shape)
    if _places(target) == _places(source):
        return True
    memory = torch.zeros(max(map(_end, (target, source))), dtype=torch.bool)
    _as(memory, target).fill_(True)
    return not _as(memory, source).any()


def _without_renaming(node: Node) -> Node:
    """Return the tensor of which a node is another name."""
    return next(n for n in _chain(node) if n.target not in _RENAMING)


def _without_values(node: Node) -> torch.Tensor | None:
    """Return a tensor that lies in memory as the node lies in the tensor that it shows, or None."""
    *views, base = _chain(node)
    info = base.meta.get("tensor")
    try:
        shown: Any = torch.empty_strided(info.shape, info.stride, device="meta")
        for view in reversed(views):
            shown = view.target(shown, *view.args[1:], **view.kwargs)  # type: ignore[operator]
    except (AttributeError, RuntimeError, TypeError):  # sizes are symbols, or the layout is not strided
        return None
    return shown  # type: ignore[no-any-return]


def _places(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return where the elements lie, in their order."""
    steps = [(size, step) for size, step in zip(tensor.shape, tensor.stride()) if size != 1]
    return tensor.storage_offset(), steps


def _end(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset()) + _extent(tensor.shape, tensor.stride())


def _as(memory: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _base(node: Node) -> Node:
    *_, base = _chain(node)
    return base


def _memory(node: Node) -> Any:
    """Return what is the same for two nodes that show one tensor."""
    base = _base(node)
    return base.args if _is_result(base) else base


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
