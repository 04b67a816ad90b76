"""EXACT passes that only remove nodes: aliases, dead code, repeated views, copies of unwritten constants."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ..node_editing import replace_nodes
from ..operators import ASSERTIONS, communicates, facts_of
from ..program import is_view, node_argument, written_args
from ..random_functions import samples, seed_generator

if TYPE_CHECKING:
    from torch.fx import Graph, Node
    from torch.fx.node import Target

    from ..program import Program
    from ..tensor_info import Shape, TensorInfo


aten = torch.ops.aten


def _is_pure_view(target: Target) -> bool:
    """Whether the result is one view that depends on shape and strides of the argument only."""
    facts = facts_of(target)
    return facts.view == "one" and not facts.renames


def _changes_metadata(graph: Graph) -> bool:
    return any(facts_of(n.target).changes_metadata for n in graph.nodes if n.op == "call_function")


def drop_aliases(program: Program) -> Program:
    """Replace detach, alias and no-op views, which only rename memory, by their argument."""
    graph = program.graph
    if _changes_metadata(graph):
        return program
    replace_nodes(graph, _aliased)
    return program


def _aliased(node: Node) -> Node | None:
    """Return the node that this one only renames, or None."""
    if node.op != "call_function":
        return None
    if facts_of(node.target).renames or _is_pure_view(node.target) and _same_layout(node):
        return node_argument(node, 0)
    if node.target is aten.t.default and node_argument(node, 0).target is aten.t.default:
        return node_argument(node_argument(node, 0), 0)
    return None


def _same_layout(node: Node) -> bool:
    own: TensorInfo | None = node.meta.get("tensor")
    base: TensorInfo | None = (
        node.args[0].meta.get("tensor") if isinstance(node.args[0], torch.fx.Node) else None
    )
    if (
        own is None
        or base is None
        or own.stride is None
        or node.target
        in (
            aten.slice.Tensor,
            aten.select.int,
            aten.as_strided.default,
            aten._unsafe_view.default,
        )
    ):
        return False
    if any(type(n) is str and not n.isidentifier() for n in base.shape):
        return False  # an expression of symbols may be 1 in a run, with the effect below
    if node.target is aten.view.default and 1 in base.shape and base.stride != _row_major(base.shape):
        # A real view gives dimensions of size 1 new strides, and bmm picks its kernel by them. A symbolic
        # view keeps the strides.
        return False
    return own == base and own.stride == base.stride


def _row_major(shape: Shape) -> tuple[int, ...] | None:
    """Return the strides of a contiguous tensor of this shape, or None if a size is a symbol."""
    strides, step = [], 1
    for size in reversed(shape):
        if isinstance(size, str):
            return None
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def drop_constant_copies(program: Program) -> Program:
    """Copy a constant of Python data in each call only if the copy may be written or returned."""
    replace_nodes(program.graph, _constant_read)
    return program


def _constant_read(node: Node) -> Node | None:
    """Return the constant that this node copies without need, or None."""
    copies_constant = (
        node.op == "call_function"
        and node.target is aten.clone.default
        and getattr(node.args[0], "op", "") == "get_attr"
    )
    return node_argument(node, 0) if copies_constant and not _may_be_written(node) else None


def _may_be_written(node: Node, depth: int = 0) -> bool:
    if depth > 20:
        return True
    for user in node.users:
        if user.op == "output" or node in written_args(user):
            return True
        if is_view(user) and _may_be_written(user, depth + 1):
            return True
    return False


def merge_views(program: Program) -> Program:
    """Take each pure view of a tensor once; views cost time but compute nothing."""
    graph = program.graph
    if _changes_metadata(graph):
        return program
    seen: dict[tuple[Target, Hashable], Node] = {}

    def earlier(node: Node) -> Node | None:
        if node.op != "call_function" or not _is_pure_view(node.target) or node.kwargs:
            return None
        original = seen.setdefault((node.target, _freeze(node.args)), node)
        return original if original is not node else None

    replace_nodes(graph, earlier)
    return program


def _freeze(value: Any) -> Hashable:
    """Return the arguments of a node as a key: lists become tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(v) for v in value)
    key: Hashable = value
    return key


def drop_kept_dimensions(program: Program) -> Program:
    """Let a sum drop its dimensions if a view of the result drops them: sum(x, [0], True).view(n).

    Such is the gradient of a bias, which torch sums and then reshapes.
    """
    replace_nodes(program.graph, _sum_of_view)
    return program


def _sum_of_view(node: Node) -> Node | None:
    """Return a new sum with the result of this view of a sum, or None."""
    total = node.args[0] if node.target is aten.view.default else None
    if not isinstance(total, torch.fx.Node) or not _keeps_dimensions(total) or len(total.users) > 1:
        return None
    own, info = node.meta.get("tensor"), node_argument(total, 0).meta.get("tensor")
    if not own or not info or not info.shape or any(type(n) is str for n in info.shape):
        return None
    dims: Any = total.args[1]
    summed = {dim % len(info.shape) for dim in dims}
    if not summed or own.shape != tuple(n for i, n in enumerate(info.shape) if i not in summed):
        return None
    with node.graph.inserting_before(node):
        shorter = node.graph.call_function(aten.sum.dim_IntList, total.args[:2])
    shorter.meta.update(node.meta)
    return shorter


def _keeps_dimensions(node: Node) -> bool:
    """Whether a node is a sum whose result has the summed dimensions, of one element."""
    return node.target is aten.sum.dim_IntList and node.args[2:] == (True,) and not node.kwargs


def drop_dead(program: Program) -> Program:
    """Remove unused nodes. Writes and sampling stay: the generator must advance as in eager."""
    graph = program.graph
    for node in reversed(list(graph.nodes)):
        if node.op in ("placeholder", "output") or node.users:
            continue
        if not has_effect(node):
            graph.erase_node(node)
    _drop_idle_generators(graph)
    return program


def _drop_idle_generators(graph: Graph) -> None:
    """Remove the seeding of generators made in build() if nothing samples from a generator.

    torch does not tell which generator a node names, so one use keeps all seedings.
    """
    seeds = [node for node in graph.nodes if node.target is seed_generator]
    if seeds and not any(
        isinstance(v, torch.Generator)
        for n in graph.nodes
        if n not in seeds
        for v in pytree.tree_leaves((n.args, n.kwargs))
    ):
        for node in seeds:
            graph.erase_node(node)


def has_effect(node: Node) -> bool:
    target = node.target
    if (
        node.op == "get_attr"
        or target is operator.getitem
        or getattr(target, "__module__", None) in ("_operator", "math")
    ):
        return False
    schema = getattr(target, "_schema", None)
    if (
        schema is None
        or schema.is_mutable
        or communicates(target)  # other ranks wait for what this one sends
        or target in ASSERTIONS
    ):
        return True
    return samples(target) or bool(written_args(node))
