"""The update of an optimizer on the CPU, block by block, with bitwise equal results.

An optimizer in plain torch passes over its tensors once for each operator (AdamW nine times). Here the
elementwise operators of one parameter are the steps of one call of oneflow::blocks_ (csrc/cpu/blocks.h). The
call applies all steps to a block of every tensor while the block is in the cache. Each step rounds as torch's
operator does; `exact_steps` compares them where the library is loaded.

A lane is what the operators of one parameter read and write. Lanes with the same steps share a call, in the
order of the parameters, as a loop over parameters would process them.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._C import _increment_version as increment_version
from torch.fx import Node

from ..._kernels import _ext
from ..program.passes.patterns import Editor, base_of, users_of_memory
from ..program.program import Program, written_args

if TYPE_CHECKING:
    from torch.fx import Graph

    from ..program.tensor_info import TensorInfo


_UNARY = ("copy", "neg", "abs", "sqrt", "reciprocal", "add_number", "mul_number", "div_number")
_BINARY = ("add", "mul", "div", "maximum", "minimum", "lerp")
_TERNARY = ("addcmul", "addcdiv")
STEPS = (*_UNARY, *_BINARY, *_TERNARY)  # enum Block of csrc/cpu/kernels.h
_WITH_NUMBER = ("add", "mul", "div")  # steps that also accept a scalar as the second operand
_SCALED = ("add", "addcmul", "addcdiv")  # by `alpha` or `value`
_MOST_OPERANDS, _TEMPORARIES = 12, 4
_WORTH = 3  # operators that a call replaces
_CODES = 6  # integers per step in the code of oneflow::blocks_ (csrc/ops.cpp)


Scalar = Node | float | None  # a number, or the node of a number


@dataclass
class Step:
    """to = name(*tensors; scalar), for the element `index` of the lists of a node."""

    node: Node
    index: int
    name: str
    to: Node
    tensors: tuple[Node, ...]
    scalar: Scalar = None


Steps = dict[Node, list[Step]]


class Operator(NamedTuple):
    """What an ATen operator of an update does: a step (or "sub"), on tensors or on lists of tensors."""

    name: str
    on_lists: bool
    in_place: bool


@functools.cache
def exact_steps(dtype: torch.dtype) -> frozenset[str]:
    """Return the steps that give torch's exact results here; both are run and compared."""
    if _ext.load() != "loaded":
        return frozenset()
    x, y, z = torch.randn(3, 1003, dtype=dtype, device="cpu", generator=torch.Generator().manual_seed(0))
    plain = {
        "copy": lambda s: x,
        "add_number": lambda s: x + s,
        "mul_number": lambda s: x * s,
        "div_number": lambda s: x / s,
        "add": lambda s: x.add(y, alpha=s),
        "lerp": lambda s: x.lerp(y, s),
        "addcmul": lambda s: x.addcmul(y, z, value=s),
        "addcdiv": lambda s: x.addcdiv(y, z, value=s),
    }

    def exact(code: int, name: str, s: float) -> bool:
        expected = plain[name](s) if name in plain else getattr(torch, name)(*(x, y)[: _arity(name)])
        out, operands = torch.empty_like(x), [1, 2, 3][: _arity(name)]
        torch.ops.oneflow.blocks_([out], [x, y, z], 1, [code, 0, *_padded(operands), 0], [s], [])
        return torch.equal(out.nan_to_num(), expected.nan_to_num())

    return frozenset(name for code, name in enumerate(STEPS) if all(exact(code, name, s) for s in (0.1, 0.7)))


def _arity(name: str) -> int:
    return 1 if name in _UNARY else 2 if name in _BINARY else 3


def _padded(operands: list[int]) -> list[int]:
    return [*operands, *[-1] * (3 - len(operands))]


def in_blocks(program: Program, skip: Collection[str] = ()) -> Program:
    """Return the program with its update in blocks. Return the program itself if nothing can be moved, or if
    "in_blocks" is to be skipped.
    """
    if "in_blocks" in skip or not any(map(_operator_of, _update_nodes(program.graph))):
        return program
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    program = program.with_(graph=graph)
    editor, steps = Editor(program), _steps(graph)
    moved: set[tuple[Node, int]] = set()
    for batch in _batches(editor, steps):
        if sum(len(lane.steps) for lane in batch) < _WORTH:
            continue
        moved.update((step.node, step.index) for lane in batch for step in lane.steps)
        _insert_calls(editor, batch)
    for node in reversed(steps):
        _drop(editor, node, {step.index for step in steps[node] if (node, step.index) in moved})
    return program


def _update_nodes(graph: Graph) -> Iterator[Node]:
    return (n for n in graph.nodes if n.op == "call_function" and n.meta.get("phase") == "update")


def _operator_of(node: Node) -> Operator | None:
    """Return the operator of a node that may be a step, else None."""
    schema = getattr(node.target, "_schema", None)
    if (
        schema is None
        or not schema.name.startswith("aten::")
        or schema.overload_name not in ("", "Tensor", "Scalar", "List", "ScalarList")
    ):
        return None
    full_name = schema.name.removeprefix("aten::")
    on_lists, in_place = full_name.startswith("_foreach_"), full_name.endswith("_")
    name = full_name.removeprefix("_foreach_").removesuffix("_")
    if name not in (*STEPS, "sub") or name == "copy" and not in_place:
        return None
    return Operator(name, on_lists, in_place)


def _steps(graph: Graph) -> Steps:
    """Return {node: its steps} for the nodes of the update that may run in blocks."""
    candidates = {node: steps for node in _update_nodes(graph) if (steps := _steps_of(node))}
    while True:  # a result with another reader must be materialized
        stepped = {
            (step.node, t)
            for steps in candidates.values()
            for step in steps
            for t in (step.to, *step.tensors)
        }
        escaped = [
            step
            for node, steps in candidates.items()
            if not _operator_of(node).in_place
            for step in steps
            if any((user, step.to) not in stepped for user in step.to.users)
        ]
        if not escaped:
            return candidates
        for step in escaped:
            candidates[step.node].remove(step)


def _steps_of(node: Node) -> list[Step]:
    """Return one step per element of the node's lists; for a node without lists, its single step."""
    op = _operator_of(node)
    if op is None or node.kwargs.keys() - {"alpha", "value"} or op.in_place and node.users:
        return []
    # a scalar may stand for a list of scalars
    columns = [a if isinstance(a, (list, tuple)) else (a,) for a in node.args]
    count = len(columns[0])
    if any(len(column) not in (1, count) for column in columns):
        return []
    results = columns[0] if op.in_place else _results(node, count) if op.on_lists else [node]
    rows = zip(*(column if len(column) == count else column * count for column in columns))
    steps = (_step(node, i, op.name, to, row) for i, (to, row) in enumerate(zip(results, rows)))
    return [step for step in steps if step is not None]


def _results(node: Node, count: int) -> list[Node | None]:
    """Return the nodes that read the elements of a list of results."""
    readers: list[Node | None] = [None] * count
    for user in node.users:
        index: Any = user.args[1] if user.target is operator.getitem else None
        if index is None or readers[index] is not None:
            return [None] * count
        readers[index] = user
    return readers


def _step(node: Node, index: int, name: str, to: Node | None, values: tuple[Any, ...]) -> Step | None:
    """Return the step of one element, or None if there is no such step."""
    tensors = tuple(itertools.takewhile(_is_tensor, values))
    scalars = values[len(tensors) :]
    factor: Any = node.kwargs.get("alpha", node.kwargs.get("value", 1))
    if to is None or not all(map(_is_scalar, (*scalars, factor))) or not _alike([to, *tensors]):
        return None
    if name == "copy":
        tensors = tensors[1:]
    is_subtraction = name == "sub"
    step, scalar = _with_scalar("add" if is_subtraction else name, len(tensors), scalars, factor)
    if step is None or step not in exact_steps(to.meta["tensor"].dtype) or len(tensors) != _arity(step):
        return None
    if is_subtraction:
        if isinstance(scalar, Node):
            return None
        scalar = -scalar
    return Step(node, index, step, to, tensors, scalar)


def _with_scalar(
    name: str, tensors: int, scalars: tuple[Scalar, ...], factor: Scalar
) -> tuple[str | None, Any]:
    """Return the step of an operator on this many tensors, and the step's scalar. The step is None if no step
    takes these scalars.
    """
    if not scalars:
        return None if name == "lerp" else name, factor if name in _SCALED else 0
    if len(scalars) == 1 and name in _WITH_NUMBER and tensors == 1 and factor == 1:
        return f"{name}_number", scalars[0]
    if len(scalars) == 1 and name in ("lerp", *_TERNARY):
        return name, scalars[0]
    return None, None


def _is_tensor(value: object) -> bool:
    return isinstance(value, Node) and value.meta.get("tensor") is not None


def _is_scalar(value: object) -> bool:
    if isinstance(value, Node):
        return value.meta.get("tensor") is None and value.target is not operator.getitem
    return type(value) in (int, float)


def _alike(nodes: Iterable[Node]) -> bool:
    """Return True if the tensors are on the CPU and share one float dtype, shape and dense layout."""
    infos = [n.meta.get("tensor") for n in nodes]
    return (
        infos[0] is not None
        and infos[0].dtype in (torch.float32, torch.float64)
        and infos[0].device.type == "cpu"
        and _is_dense(infos[0])
        and all(info is not None and _layout(info) == _layout(infos[0]) for info in infos)
    )


def _is_dense(info: TensorInfo) -> bool:
    """Return True if a tensor has static sizes, and its elements fill its memory without gaps."""
    if info.stride is None or not all(type(n) is int for n in (*info.shape, *info.stride)):
        return False
    expected = 1
    sizes: Any = info.shape
    for stride, size in sorted((st, size) for size, st in zip(sizes, info.stride) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _layout(info: TensorInfo) -> tuple[Any, ...]:
    return (
        info.shape,
        info.dtype,
        info.device,
        info.stride and tuple(st for size, st in zip(info.shape, info.stride) if size != 1),
    )


class Lane:
    """The steps of one parameter in order, the tensors they write and read, and the last position that all of
    them may be moved to.
    """

    def __init__(self, editor: Editor, steps: list[Step], foreign: list[float]) -> None:
        self.steps = sorted(steps, key=lambda step: (editor.order[step.node], step.index))
        self.nodes = {step.node for step in self.steps}
        self.first, self.last = editor.order[self.steps[0].node], editor.order[self.steps[-1].node]
        temporaries = {step.to for step in self.steps if not _operator_of(step.node).in_place}
        operands = dict.fromkeys(t for step in self.steps for t in (step.to, *step.tensors))
        tensors = [t for t in operands if t not in temporaries]
        targets = {step.to for step in self.steps}
        self.written = [t for t in tensors if t in targets]
        self.read = [t for t in tensors if t not in targets]
        self.scalars = [step.scalar for step in self.steps]
        self.code = self._code(temporaries)
        self.limit = self._limit(editor, foreign)
        self.fits = self._fits(tensors)

    def _fits(self, tensors: list[Node]) -> bool:
        """Return True if one call can run the lane, whose tensors may not share memory."""
        if tensors[0].meta["tensor"].shape == () and len(self.steps) < _WORTH:
            return False  # a counter, which is read immediately
        return (
            self.code is not None
            and self.last < self.limit
            and len({base_of(t) for t in tensors}) == len(tensors)
            and all(base_of(t) is t for t in self.written)
        )

    def _code(self, temporaries: set[Node]) -> tuple[int, ...] | None:
        """Return six integers per step (see csrc/ops.cpp), with scalars numbered like the steps. Return None
        if it takes too many tensors.
        """
        positions = {t: i for i, t in enumerate((*self.written, *self.read))}
        free = [len(positions) + i for i in range(_TEMPORARIES)]
        if len(positions) > _MOST_OPERANDS or not self.written:
            return None
        operands = ((t, i) for i, step in enumerate(self.steps) for t in (step.to, *step.tensors))
        last = {t: i for t, i in operands if t in temporaries}
        code = []
        for i, step in enumerate(self.steps):
            read_positions = _padded([positions[t] for t in step.tensors])
            if step.to not in positions:
                if not free:
                    return None
                positions[step.to] = free.pop(0)
            code += [STEPS.index(step.name), positions[step.to], *read_positions, i]
            free[:0] = [positions[t] for t in last if last[t] == i]
        return tuple(code)

    def _limit(self, editor: Editor, foreign: list[float]) -> float:
        """Return the position before which only the lane touches the tensors it writes, and nobody writes
        those it reads.
        """
        position = editor.order
        ends = [
            position[user]
            for t in self.written
            for user in users_of_memory(t)
            if position[user] > self.first and user not in self.nodes
        ]
        ends += [i for t in self.read for i in editor.writes.get(base_of(t), ()) if i > self.first]
        ends += foreign[bisect.bisect_right(foreign, self.first) :][:1]
        return min(ends, default=len(position))


def _batches(editor: Editor, steps: Steps) -> Iterator[list[Lane]]:
    """Return lists of lanes that may all run after their last step. Two inputs are assumed not to share
    memory.
    """
    foreign = [
        i
        for node, i in editor.order.items()
        if node.op == "call_function"
        and node not in steps
        and any(_is_state(base_of(t)) for t in written_args(node))
    ]
    batch: list[Lane] = []
    last: float = 0
    limit: float = 0
    for lane in sorted(
        (Lane(editor, lane, foreign) for lane in _lanes(steps)),
        key=lambda lane: (lane.first, lane.steps[0].index),
    ):
        if not lane.fits:
            continue
        if batch and max(last, lane.last) < min(limit, lane.limit):
            last, limit = max(last, lane.last), min(limit, lane.limit)
        else:
            if batch:
                yield batch
            batch, last, limit = [], lane.last, lane.limit
        batch.append(lane)
    yield batch


def _is_state(node: Node) -> bool:
    return (
        node.op == "placeholder" and node.meta.get("tensor") is not None and node.meta["tensor"].shape != ()
    )


def _lanes(steps: Steps) -> list[list[Step]]:
    """Return lists of the steps that share memory."""
    lane_of: dict[Node, list[Step]] = {}
    for step in (step for of_node in steps.values() for step in of_node):
        lane = [step]
        for joined in {id(lane_of[m]): lane_of[m] for m in _memory(step) if m in lane_of}.values():
            lane.extend(joined)
        lane_of.update(dict.fromkeys((m for s in lane for m in _memory(s)), lane))
    return list({id(lane): lane for lane in lane_of.values()}.values())


def _memory(step: Step) -> Iterator[Node]:
    """Return keys for the memory of a step's tensors. The results of a compiled region do not overlap."""
    for t in (step.to, *step.tensors):
        base = base_of(t)
        yield base if base.op != "call_function" or hasattr(base.target, "_schema") else t


class Blocks:
    """A call of oneflow::blocks_ on lanes with the same steps."""

    __name__ = "blocks_"  # torch.fx derives a node name from it

    def __init__(self, lanes: int, code: tuple[int, ...]) -> None:
        self.lanes, self.code = lanes, code
        self.op = torch.ops.oneflow.blocks_.default

    def __call__(
        self, written: list[torch.Tensor], read: list[torch.Tensor], common: list[float], own: list[float]
    ) -> None:
        self.op(written, read, self.lanes, self.code, common, own)
        increment_version(written)


def _insert_calls(editor: Editor, batch: list[Lane]) -> None:
    """Insert the calls of a batch after its last step, one call for each list of steps."""
    after = max((step.node for lane in batch for step in lane.steps), key=editor.order.__getitem__)
    alike: dict[tuple[tuple[int, ...] | None, int], list[Lane]] = {}
    for lane in batch:
        alike.setdefault((lane.code, len(lane.written)), []).append(lane)
    for lanes in alike.values():
        code, common, own = _with_scalars(lanes)
        written = [t for lane in lanes for t in lane.written]
        read = [t for lane in lanes for t in lane.read]
        with editor.graph.inserting_after(after):
            after = editor.graph.call_function(Blocks(len(lanes), code), (written, read, common, own))
        after.meta["phase"] = "update"


def _with_scalars(lanes: list[Lane]) -> tuple[tuple[int, ...], list[Scalar], list[Scalar]]:
    """Return the code of lanes with the same steps, the scalars that all of them share, and the others."""
    columns = list(zip(*(lane.scalars for lane in lanes)))
    shared = [i for i, column in enumerate(columns) if all(_equal(s, column[0]) for s in column)]
    own = [i for i in range(len(columns)) if i not in shared]
    positions = {i: position for position, i in enumerate((*shared, *own))}
    code = list(lanes[0].code or ())
    code[_CODES - 1 :: _CODES] = map(positions.__getitem__, code[_CODES - 1 :: _CODES])
    return (
        tuple(code),
        [lanes[0].scalars[i] for i in shared],
        [lane.scalars[i] for lane in lanes for i in own],
    )


def _equal(a: Scalar, b: Scalar) -> bool:
    return a is b or not isinstance(a, Node) and repr(a) == repr(b)


def _drop(editor: Editor, node: Node, gone: set[int]) -> None:
    """Remove the elements `gone` from a node."""
    op = _operator_of(node)
    elements: Any = node.args[0]
    kept = [i for i in range(len(elements) if op.on_lists else 1) if i not in gone]
    for result in () if op.in_place or not op.on_lists else list(node.users):
        index: Any = result.args[1]
        if index in gone:
            editor.graph.erase_node(result)
        else:
            result.args = (node, kept.index(index))
    if not kept:
        editor.graph.erase_node(node)
    elif gone:
        node.args = tuple([a[i] for i in kept] if isinstance(a, (list, tuple)) else a for a in node.args)
