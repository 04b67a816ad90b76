"""Fixes for writes that torch's inductor does in place although the old value is still read (2.13,
torch.compile too).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import torch

from ...program.memory import overlapping
from ...program.program import is_view, node_argument

if TYPE_CHECKING:
    from torch.fx import Graph, Node

aten = torch.ops.aten


@contextlib.contextmanager
def in_place_fixes() -> Iterator[None]:
    """Apply all fixes of this file."""
    with (
        overlaps_found(),
        private_memory_reused(),
        old_values_kept(),
        readers_realized(),
        moved_values_realized(),
        versions_compared(),
    ):
        yield


@contextlib.contextmanager
def overlaps_found() -> Iterator[None]:
    """Decide by our own function which tensors lie in the memory that an operator may write.

    Torch's takes `x[6:7]` for apart from `x` if the rows of `x` have gaps between them. Without the fix,
    `y = empty_strided_as(x); y.copy_(x); y[6:7].index_fill_(...)` wrote into x.
    """
    from torch._inductor.fx_passes import reinplace

    with mock.patch.object(reinplace, "compute_overlapping_tensors", overlapping):
        yield


@contextlib.contextmanager
def private_memory_reused() -> Iterator[None]:
    """Let a write into a part of a tensor reuse the tensor's memory only if nothing else reads it.

    The memory is that of an input which the program writes, or of a fresh result whose only reader is the
    write. Without the fix, `z[index] = 0.; z.sum().backward()` wrote into the gradient of the sum, which is a
    single element expanded, and `h.index_add(0, targets, h)` read rows that it had already added to. In
    `q[index] = x; old = q.clone(); q.zero_()`, old was 0, because inductor removes the clone.
    """
    from torch._inductor.fx_passes.reinplace import inplaceable_ops

    checked = {}
    for target, entry in inplaceable_ops.items():
        check = lambda node, entry=entry: entry.extra_check(node) and _may_reuse(node, _written(entry))
        checked[target] = dataclasses.replace(entry, extra_check=check)
    with mock.patch.dict(inplaceable_ops, checked):
        yield


def _may_reuse(node: Node, written: tuple[int, ...]) -> bool:
    """Whether a node may write into the memory of its arguments with these indices."""
    from torch._inductor.fx_utils import get_node_storage

    tensors: list[Node] = torch.utils._pytree.tree_leaves([node.args[index] for index in written])
    others = [argument for index, argument in enumerate(node.args) if index not in written]
    memory = {get_node_storage(tensor) for tensor in tensors}
    if memory & _storages(torch.utils._pytree.tree_leaves((others, node.kwargs))):
        return False
    inputs = _storages(node.graph.find_nodes(op="placeholder")) | _storages(
        node.graph.find_nodes(op="get_attr")
    )
    return all(get_node_storage(tensor) in inputs or _is_private(tensor) for tensor in tensors) and not (
        memory & inputs and _is_read_after_copies(node, memory)
    )


def _is_read_after_copies(node: Node, memory: set[int | None]) -> bool:
    """Whether the result of a node is read after the program has copied another value to an input's memory.

    Before: a = index_put(q, ...); copy_(q, b); return a. In place, a would be q, and so b.
    """
    from torch._inductor.fx_utils import get_node_storage

    copies = node.graph.find_nodes(op="call_function", target=aten.copy_.default)
    copies = [c for c in copies if _writes_input(c) and get_node_storage(c.args[0]) in memory]
    while (writer := _only_writer(node)) is not None:  # the writer may reuse the memory of the node
        node = writer
    copies = [copy for copy in copies if copy.args[1] is not node]
    return bool(copies) and any(user >= copies[0] for user in _readers(node))


def _only_writer(node: Node) -> Node | None:
    """Return the only user of a node, if that writes into a part of the node."""
    from torch._inductor.fx_passes.reinplace import inplaceable_ops

    if len(node.users) != 1:
        return None
    (user,) = node.users
    entry = inplaceable_ops.get(cast("Any", user.target))
    return user if entry is not None and any(user.args[i] is node for i in _written(entry)) else None


def _written(entry: Any) -> tuple[int, ...]:
    """Return the positions of the arguments that an operator in place writes."""
    argument: Any = entry.mutated_arg  # an index, or several (torch 2.13)
    return argument if isinstance(argument, tuple) else (argument,)


def _readers(node: Node) -> Iterator[Node]:
    """Yield the users of a node and of its views."""
    for user in node.users:
        yield user
        if user.op == "call_function" and is_view(user):
            yield from _readers(user)


def _is_private(node: Node) -> bool:
    """Whether the result of a node with a single reader lies in dense memory of its own.

    Ask the schema whether the result is a view. If equal operators were merged, a view of the removed result
    still has that result's storage.
    """
    from torch._inductor.fx_passes.post_grad import noop_registry

    # an operator of the noop_registry may be lowered to its argument
    return (
        node.op == "call_function"
        and not is_view(node)
        and node.target not in noop_registry
        and len(node.users) == 1
        and torch._debug_has_internal_overlap(node.meta["val"]) == 0
    )


def _storages(values: Iterable[Any]) -> set[int]:
    from torch._inductor.fx_utils import get_node_storage

    storages = (get_node_storage(value) for value in values if isinstance(value, torch.fx.Node))
    return {storage for storage in storages if storage is not None}


@contextlib.contextmanager
def old_values_kept() -> Iterator[None]:
    """Copy the value of an input that the program reads after it has written the input.

    The program is without writes up to its last nodes, so each use of an input means its old value. Inductor
    removes operators that copy (clone, cat of one tensor, x * 1), and then `t = w.clone(); w.copy_(e);
    e.copy_(t)` read w after the write.
    """
    from torch._inductor.fx_passes import post_grad

    reuse = post_grad.reinplace_inplaceable_ops

    def copy_and_reuse(updater: Any, graph: Graph) -> None:
        copy_old_values(graph)
        reuse(updater, graph)

    with mock.patch.object(post_grad, "reinplace_inplaceable_ops", copy_and_reuse):
        yield


def copy_old_values(graph: Graph) -> None:
    """Read copies of inputs, made before the first write, wherever a write of the input comes first.

    Before: copy_(w, e); copy_(e, w). After: old = clone(w); copy_(w, e); copy_(e, old).
    """
    from torch._inductor.fx_passes.reinplace import graph_call_function
    from torch._inductor.fx_utils import get_node_storage

    nodes = list(graph.nodes)
    writes = [n for n in graph.find_nodes(op="call_function", target=aten.copy_.default) if _writes_input(n)]
    if not writes:
        return
    late = dict.fromkeys(nodes[nodes.index(writes[0]) :])
    written: set[Any] = set()
    copies: dict[Node, Node] = {}

    def old(value: Node) -> Node:  # a view among the late nodes is one of an old value already
        if value in late or get_node_storage(value) not in written:
            return value
        if value not in copies:
            with graph.inserting_before(writes[0]):
                copies[value] = graph_call_function(graph, aten.clone.default, value)
        return copies[value]

    for node in late:
        if node in writes:
            destination, source, *rest = node.args
            if destination is not source:
                written.add(get_node_storage(destination))
                node.args = (destination, old(source), *rest)
        else:
            node.args, node.kwargs = torch.fx.map_arg((node.args, node.kwargs), old)


def _writes_input(node: Node) -> bool:
    return node_argument(node, 0).op in ("placeholder", "get_attr")


@contextlib.contextmanager
def readers_realized() -> Iterator[None]:
    """Compute indices and values before a write in place if they are computed from the written tensor.

    Inductor computes them inside the loop that writes. Without the fix, `q[(q[:, 0].long() + 1) % n] = x`
    read elements of q that the loop had already written.
    """
    from torch._inductor import lowering
    from torch._inductor.ir import TensorBox, try_get_name

    put: Any = lowering.index_put_impl_

    def index_put(written: Any, indices: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        name = try_get_name(written)
        for operand in (values, *indices):
            if isinstance(operand, TensorBox) and name in operand.get_read_names():
                operand.realize()
        return put(written, indices, values, *args, **kwargs)

    with mock.patch.object(lowering, "index_put_impl_", index_put):
        yield


@contextlib.contextmanager
def moved_values_realized() -> Iterator[None]:
    """Compute what is copied into a tensor before the copy if it reads other elements of that tensor.

    Inductor computes the value inside the loop that writes, unless it thinks that the value is expensive.
    Without the fix, `c = q[1:].chunk(2)[0]; c[0], c[-1] = c[-1].clone(), c[0].clone()` read an element of q
    that the loop had already written.
    """
    from torch._inductor.dependencies import extract_read_writes
    from torch._inductor.ir import FlexibleLayout, MutationLayoutSHOULDREMOVE

    realize_into = MutationLayoutSHOULDREMOVE.realize_into

    def realized_into(source: Any, target: Any, unsafe_alias: bool = False) -> Any:
        target.realize()  # torch does the same next: a value that is not computed yet has no name
        name = target.get_name()
        if name in source.get_read_names():
            with mock.patch.object(FlexibleLayout, "allow_indexing", True):
                read, written = (extract_read_writes(v.make_loader(), v.get_size()) for v in (source, target))
            if not {dependency for dependency in read.reads if dependency.name == name} <= set(written.reads):
                source.realize()
        return realize_into(source, target, unsafe_alias)

    with mock.patch.object(MutationLayoutSHOULDREMOVE, "realize_into", realized_into):
        yield


@contextlib.contextmanager
def versions_compared() -> Iterator[None]:
    """Compare the positions that a loop reads with those that a fused loop writes, also after earlier writes.

    After a write in place, the scheduler knows memory by the name of the write. It looked for reads under the
    first name only. Without the fix, `q[i] = z; q.add_(q.roll(1, 0))` read rows that it had already added to.
    """
    from torch._inductor.dependencies import MemoryDep
    from torch._inductor.scheduler import Scheduler

    fusable = Scheduler.fusable_weak_dep

    def all_fusable(self: Scheduler, dependency: Any, reader: Any, writer: Any) -> bool:
        if not fusable(self, dependency, reader, writer):
            return False
        memory = self.mutation_real_name[dependency.mutating_buf]
        (write,) = (w for w in writer.read_writes.writes if w.name == dependency.mutating_buf)
        reads = [read for node in reader.get_nodes() for read in node.read_writes.reads]
        return all(
            isinstance(read, MemoryDep) and read.index == write.index and read.size == write.size
            for read in reads
            if self.mutation_real_name.get(read.name) == memory
        )

    with mock.patch.object(Scheduler, "fusable_weak_dep", all_fusable):
        yield
