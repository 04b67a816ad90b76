"""Nodes of torch.fx graphs, created and replaced faster than torch does.

`Graph.create_node` (torch 2.13) looks for raw symbols among all elements of the arguments. The recorder
passes none. A node that gets its arguments afterwards is not searched.

`Node.replace_all_uses_with` reads all arguments of each user anew. The update of an optimizer has thousands.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.fx
from torch.fx import Graph, Node

if TYPE_CHECKING:
    from torch.fx.node import Argument as FxArgument


def call(
    graph: Graph, target: Callable[..., Any], args: tuple[FxArgument, ...], kwargs: dict[str, FxArgument]
) -> Node:
    """Append a call, whose arguments hold no symbolic numbers."""
    return _with_arguments(graph.create_node("call_function", target), args, kwargs)


def copied(graph: Graph, node: Node, copies: dict[Node, Node]) -> Node:
    """Append a copy of a node whose inputs have copies, as `graph.node_copy` does."""
    new = graph.create_node(node.op, node.target, name=node.name, type_expr=node.type)
    new.meta = copy.copy(node.meta)
    args = torch.fx.map_arg(node.args, copies.__getitem__)
    return _with_arguments(new, args, torch.fx.map_arg(node.kwargs, copies.__getitem__))


def replace_nodes(graph: Graph, replacement_of: Callable[[Node], Node | None]) -> None:
    """Remove each node for which `replacement_of` returns another one, which its users then read.

    Nodes are asked in order, after their own arguments were replaced.
    """
    replaced: dict[Node, Node] = {}
    for node in list(graph.nodes):
        if not replaced.keys().isdisjoint(node.all_input_nodes):
            node.args = torch.fx.map_arg(node.args, lambda n: replaced.get(n, n))
            node.kwargs = torch.fx.map_arg(node.kwargs, lambda n: replaced.get(n, n))
        replacement = replacement_of(node)
        if replacement is not None:
            replaced[node] = replacement
    for node in reversed(replaced):
        graph.erase_node(node)


def _with_arguments(node: Node, args: tuple[FxArgument, ...], kwargs: dict[str, FxArgument]) -> Node:
    if args:
        node.args = args
    if kwargs:
        node.kwargs = kwargs
    return node
