"""Give a program what takes its writes back if it fails, or if a signal interrupts it.

A program ends with its commit: the operators from the first write on after which nothing fails. For training,
this is the update. What the commit writes needs no copy. What is written before (running statistics, caches,
arguments) is copied at the beginning of each run, or if it is large, just before it is written:

    log = UndoLog()
    keep_vectors(log, [running_mean, running_var])
    native_batch_norm(x, weight, bias, running_mean, running_var, True, 0.1, 1e-05)
    ...
    _fused_sgd_([weight, bias], ...)  # the commit

Inference without writes and without random numbers needs no log, and stays as it is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _increment_version as increment_version
from torch.fx import Node
from torch.fx.node import map_arg

from ..program.operators import facts_of
from ..program.program import Program, is_view, node_argument, roots, written_args
from ..program.random_functions import PYTHON_NAMES, samples
from .undo_log import UndoLog, keep, keep_generators, keep_items, keep_scalars, keep_vectors
from .update_blocks import Blocks

if TYPE_CHECKING:
    from torch.fx import Graph

    from ..program.tensor_info import TensorInfo

aten = torch.ops.aten

_LARGE = 1 << 20  # bytes from which on only what an operator writes is copied
_SMALL = 1 << 14  # bytes of an index that is computed once more, before a compiled region
_MOST_COPIED = 16  # operators that are computed once more
_MOST_COMMITTED = 6  # operators of a commit that run one by one; for more, signals wait

_ROWS = (aten.index_select.default, aten.index_copy_.default)
_ITEMS = (aten.index.Tensor, aten.index_put_.default)
_ELEMENTS = (aten.gather.default, aten.scatter_.src)
# operator -> (how what it writes is read, and written back, number of arguments that say where)
_INDEXED: dict[Any, tuple[tuple[Any, Any], int]] = {
    **dict.fromkeys(
        (
            aten.index_copy_.default,
            aten.index_add_.default,
            aten.index_fill_.int_Scalar,
            aten.index_fill_.int_Tensor,
            aten.index_reduce_.default,
        ),
        (_ROWS, 2),
    ),
    **dict.fromkeys((aten.index_put_.default, aten._index_put_impl_.default), (_ITEMS, 1)),
    **dict.fromkeys(
        (
            aten.scatter_.src,
            aten.scatter_.value,
            aten.scatter_.reduce,
            aten.scatter_.value_reduce,
            aten.scatter_add_.default,
            aten.scatter_reduce_.two,
        ),
        (_ELEMENTS, 2),
    ),
}
# operators that read values and never refuse them; those with the tag "pointwise" are not listed
_SURE = frozenset(
    "copy_ fill_ zero_ masked_fill_ _local_scalar_dense _to_copy cat stack clone ones_like zeros_like"
    " full_like empty_like new_zeros new_ones new_full new_empty full zeros ones empty scalar_tensor".split()
)
# These operators are sure as well. They take long, so only the commit of an update may contain them.
_SURE_IN_UPDATES = frozenset(
    "mm bmm addmm mv addmv baddbmm dot sum mean amax amin norm linalg_vector_norm any all max min"
    " _amp_foreach_non_finite_check_and_unscale_ _amp_update_scale_".split()
)
# operators that refuse zeros or negative integers
_REFUSE_INTEGERS = frozenset(
    getattr(aten, name + suffix)
    for name in ("div", "floor_divide", "fmod", "pow", "remainder")
    for suffix in ("", "_")
)


def with_undo(program: Program) -> Program:
    """Return the program with a log of what it writes, or the program itself if it needs none."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    _without_python(graph)
    calls = [n for n in graph.nodes if n.op == "call_function"]
    start = _start_of_commit(calls)
    early, generators = _first_writes(calls[:start]), _generators(program, calls)
    if not early and not generators and len(_written_state(calls[start:])) < 2:
        return program.with_(graph=graph)  # a program that writes nothing, or with one operator
    if start < len(calls):
        _mark_commit(calls[start:])
    with graph.inserting_before(calls[0]):
        log = graph.call_function(UndoLog)
        log.meta["undo_log"] = True
        if generators:
            graph.call_function(keep_generators, (log, generators))
    _keep(graph, log, early)
    return program.with_(graph=graph)


def _without_python(graph: Graph) -> None:
    """Replace calls of Blocks by the calls in it, between which a signal is handled here and not there."""
    for node in [n for n in graph.nodes if isinstance(n.target, Blocks)]:
        blocks: Any = node.target
        written, read, *scalars = node.args
        with graph.inserting_before(node):
            call = graph.call_function(blocks.op, (written, read, blocks.lanes, blocks.code, *scalars))
            call.meta = dict(node.meta)
            graph.call_function(increment_version, (written,)).meta = dict(node.meta)
        graph.erase_node(node)


# ------------------------------------------------------------------ What is written, and what cannot fail


def _written(node: Node) -> list[Node]:
    """Return the arguments that a call writes. A compiled region has their positions."""
    return [*(node_argument(node, i) for i in node.meta.get("writes", ())), *written_args(node)]


def _written_state(calls: Iterable[Node]) -> list[Node]:
    """Return the calls that write inputs of the program."""
    return [n for n in calls if any(_state(value) is not None for value in _written(n))]


def _state(value: Node) -> Node | None:
    """Return the input of the program that a value is a view of, or None."""
    *_, base = roots([value])
    return base if base.op == "placeholder" else None


def _first_writes(calls: Iterable[Node]) -> dict[Node, list[Node]]:
    """Return {input of the program: calls that write it}."""
    writes: dict[Node, list[Node]] = {}
    for node in calls:
        for value in _written(node):
            root = _state(value)
            if root is not None and node not in writes.setdefault(root, []):
                writes[root].append(node)
    return writes


def _start_of_commit(calls: list[Node]) -> int:
    """Return the position of the first call from which on nothing fails, and which writes state."""
    start = len(calls)
    while start and _is_sure(calls[start - 1]):
        start -= 1
    return next((i for i in range(start, len(calls)) if _written_state([calls[i]])), len(calls))


def _is_sure(node: Node) -> bool:
    """Whether a call fails only if there is no memory left."""
    target: Any = node.target
    if target is operator.getitem or target is increment_version:
        return True
    if node.meta.get("phase") != "update" and _may_refuse_values(node):
        return False
    if is_view(node):
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__module__", None) in ("_operator", "math")
    if target.namespace != "aten" or samples(target):
        return target._schema.name == "oneflow::blocks_"
    name = target._schema.name.removeprefix("aten::")
    return (
        torch.Tag.pointwise in target.tags
        or name in _SURE
        or name.startswith(("_foreach_", "_fused_"))
        or facts_of(target).view is not None
        or node.meta.get("phase") == "update"
        and name in _SURE_IN_UPDATES
    )


def _may_refuse_values(node: Node) -> bool:
    """Whether a call may refuse a number, an integer, a size that varies, or the size of a storage."""
    infos = _fixed_infos(node)
    if infos is None:
        return True
    target: Any = node.target
    if target is aten.as_strided.default:
        return _state(node) is not None
    dtypes = {info.dtype for info in infos}
    if not is_view(node) and _has_overflow([*node.args, *node.kwargs.values()], dtypes):
        return True
    if all(dtype.is_floating_point or dtype.is_complex for dtype in dtypes):
        return False
    return isinstance(target, torch._ops.OpOverload) and target.overloadpacket in _REFUSE_INTEGERS


def _fixed_infos(node: Node) -> list[TensorInfo] | None:
    """Return the metadata of the operands and the result, or None if an operand or a size is not known."""
    operands = [n.meta.get("tensor") for n in node.all_input_nodes]
    infos = [info for info in (*operands, node.meta.get("tensor")) if info is not None]
    if len(infos) < len(operands) or any(type(size) is str for info in infos for size in info.shape):
        return None
    return infos


def _has_overflow(arguments: list[Any], dtypes: set[torch.dtype]) -> bool:
    """Whether a number among the arguments exceeds one of the dtypes."""
    return any(_exceeds(number, dtype) for number in arguments for dtype in dtypes)


def _exceeds(value: object, dtype: torch.dtype) -> bool:
    """Whether the conversion of a number to a dtype overflows."""
    if type(value) not in (int, float) or dtype is torch.bool or value in (math.inf, -math.inf):
        return False
    limits = torch.finfo(dtype) if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype)
    return bool(abs(value) > limits.max)  # type: ignore[arg-type]


def _generators(program: Program, calls: list[Node]) -> list[Any]:
    """Return the random generators that a run may advance."""
    used: list[Any] = [
        a for n in calls for a in (*n.args, *n.kwargs.values()) if isinstance(a, torch.Generator)
    ]
    if any(samples(n.target) or n.meta.get("samples") or n.target in _OF_STATES for n in calls):
        devices = {s.device for s in program.slots if s.device is not None}
        of_devices = dict(enumerate(torch.cuda.default_generators))  # none without a GPU
        indices = {d.index or 0 for d in devices if d.type == "cuda"}
        on_cuda = (of_devices[index] for index in sorted(indices & of_devices.keys()))
        used += [torch.default_generator, *on_cuda]
    return list({id(generator): generator for generator in used}.values())


_OF_STATES = frozenset(PYTHON_NAMES.values())


# ------------------------------------------------------------------ The commit


def _mark_commit(calls: Iterable[Node]) -> None:
    """Number the writing calls of the commit for the code generator, or let signals wait for all of it."""
    calls = list(calls)
    writing = [n for n in calls if _written(n)]
    if len(writing) > _MOST_COMMITTED or not all(map(_is_atomic, writing)):
        calls[0].meta["commit"] = "held"
    else:
        for position, node in enumerate(writing):
            node.meta["commit"] = position


def _is_atomic(node: Node) -> bool:
    """Whether no Python code runs in a call."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace in ("aten", "oneflow")


# ------------------------------------------------------------------ What is copied


def _keep(graph: Graph, log: Node, writes: dict[Node, list[Node]]) -> None:
    """Insert the calls that copy inputs before they are written."""
    plain: list[Node] = []
    for root, nodes in writes.items():
        if _size(root) < _LARGE or not _keep_parts(graph, log, root, nodes):
            plain.append(root)
    groups: dict[Any, list[Node]] = {}
    for root in plain:
        info = root.meta["tensor"]
        rank = len(info.shape) if info.stride is not None else None
        together = {0: keep_scalars, 1: keep_vectors}.get(rank, keep)  # type: ignore[arg-type]
        groups.setdefault((together, together is not keep and (info.dtype, info.device)), []).append(root)
    with graph.inserting_after(log):
        for (function, _), nodes in groups.items():
            graph.call_function(function, (log, nodes))


def _size(node: Node) -> int:
    """Return the bytes of a tensor. A size that is no constant counts as large."""
    info = node.meta["tensor"]
    count = info.dtype.itemsize
    for size in info.shape:
        count *= size if type(size) is int else _LARGE
    return int(count)


class _All(Exception):
    """A call may write all of an input."""


def _keep_parts(graph: Graph, log: Node, root: Node, nodes: list[Node]) -> bool:
    """Copy the parts of a large input that calls write. Return False if that would not be less."""
    try:
        parts = [(node, part) for node in nodes for part in _parts(graph, node, root)]
    except _All:
        return False
    for node, (function, *arguments) in parts:
        with graph.inserting_before(node):
            graph.call_function(function, (log, *arguments))
    return True


def _parts(graph: Graph, call: Node, root: Node) -> Iterator[tuple[Any, ...]]:
    """Yield (function that copies a part, its arguments) for what a call writes of an input."""
    region = call.meta.get("region")
    if region is None:
        yield from _parts_written(call, root, lambda value: value)
        return
    original = next(n for n in region[0].graph.nodes if n.op == "placeholder" and n.name == root.name)
    early_values = _EarlyValues(graph, call, root)
    with graph.inserting_before(call):
        for node in _first_writes(region).get(original, ()):
            yield from _parts_written(node, original, early_values.value)


class _EarlyValues:
    """Small values of a compiled region, computed once more before its call."""

    def __init__(self, graph: Graph, call: Node, root: Node) -> None:
        """`root`: the input whose writes the values locate. Other inputs that the call writes give none."""
        self.graph = graph
        self.inputs = {node.name: node for node in call.all_input_nodes}
        self.written = {node_argument(call, i).name for i in call.meta["writes"]} - {root.name}
        self.copies: dict[Node, Node] = {}  # node of the region -> its copy before the call

    def value(self, node: Node) -> Node:
        """Return a node before the call with the value of a node of the region, or raise _All."""
        if node.op == "placeholder":
            if node.name in self.written:
                raise _All
            return self.inputs[node.name]
        if node not in self.copies:
            if not self._may_copy(node):
                raise _All
            self.copies[node] = self.graph.node_copy(node, self.value)
        return self.copies[node]

    def _may_copy(self, node: Node) -> bool:
        is_cheap = is_view(node) or _is_small(node)
        return node.op == "call_function" and is_cheap and len(self.copies) <= _MOST_COPIED


def _is_small(node: Node) -> bool:
    """Whether it costs nothing to compute a value once more."""
    info = node.meta.get("tensor")
    return info is not None and _size(node) < _SMALL and _is_sure(node) and not _written(node)


def _parts_written(node: Node, root: Node, available: Callable[[Node], Node]) -> Iterator[tuple[Any, ...]]:
    for value in _written(node):
        if _state(value) is not root:
            continue
        indexed = _INDEXED.get(node.target)
        if indexed is not None:
            (read, write), count = indexed
            yield keep_items, read, write, *map_arg((value, *node.args[1 : 1 + count]), available)
        elif value is root or value.meta.get("tensor") is None or _size(value) * 2 > _size(root):
            raise _All
        else:
            yield keep, [available(value)]
