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
import operator
from dataclasses import dataclass

import torch
from torch._C import _increment_version as increment_version
from torch.fx import Node

from ..program.passes.patterns import Editor, base_of, users_of_memory
from ..program.program import written_args

_ONE = ("copy", "neg", "abs", "sqrt", "reciprocal", "add_number", "mul_number", "div_number")
_TWO = ("add", "mul", "div", "maximum", "minimum", "lerp")
_THREE = ("addcmul", "addcdiv")
STEPS = (*_ONE, *_TWO, *_THREE)  # enum Block of csrc/cpu/kernels.h
_WITH_NUMBER = ("add", "mul", "div")  # steps that also accept a scalar as the second operand
_SCALED = ("add", "addcmul", "addcdiv")  # by `alpha` or `value`
_OPERANDS, _TEMPORARIES = 12, 4
_WORTH = 3  # operators that a call replaces


@dataclass
class Step:
    """to = name(*tensors; scalar), for the element `index` of the lists of a node."""

    node: Node
    index: int
    name: str
    to: Node
    tensors: tuple
    scalar: object = None  # a scalar, or the node of a scalar


@functools.cache
def exact_steps(dtype) -> frozenset:
    """Return the steps that give torch's exact results here; both are run and compared."""
    from ..._kernels import _ext

    if _ext.status() != "loaded":
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

    def exact(code, name, s):
        expected = plain[name](s) if name in plain else getattr(torch, name)(*(x, y)[: _operands(name)])
        out, places = torch.empty_like(x), [1, 2, 3][: _operands(name)]
        torch.ops.oneflow.blocks_(
            [out], [x, y, z], 1, [code, 0, *places, *[-1] * (3 - len(places)), 0], [s], []
        )
        return torch.equal(out.nan_to_num(), expected.nan_to_num())

    return frozenset(name for code, name in enumerate(STEPS) if all(exact(code, name, s) for s in (0.1, 0.7)))


def _operands(name):
    return 1 if name in _ONE else 2 if name in _TWO else 3


def in_blocks(program, skip=()):
    """Return the program with its update in blocks. Return the program itself if nothing can be moved, or if
    "in_blocks" is to be skipped.
    """
    if "in_blocks" in skip or not any(
        n.op == "call_function" and n.meta.get("phase") == "update" and _named(n) for n in program.graph.nodes
    ):
        return program
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    program = program.with_(graph=graph)
    editor, steps = Editor(program), _steps(graph)
    moved = set()
    for batch in _batches(editor, steps):
        if sum(len(lane.steps) for lane in batch) < _WORTH:
            continue
        moved.update((step.node, step.index) for lane in batch for step in lane.steps)
        _place(editor, batch)
    for node in reversed(steps):
        _drop(editor, node, {step.index for step in steps[node] if (node, step.index) in moved})
    return program


def _named(node):
    """Return (operator name, whether it works on lists, whether it is in place) if the node may be a step,
    else None.
    """
    schema = getattr(node.target, "_schema", None)
    if (
        schema is None
        or not schema.name.startswith("aten::")
        or schema.overload_name not in ("", "Tensor", "Scalar", "List", "ScalarList")
    ):
        return None
    name = schema.name[6:]
    lists, place = name.startswith("_foreach_"), name.endswith("_")
    name = name.removeprefix("_foreach_").removesuffix("_")
    return (name, lists, place) if (name in STEPS or name == "sub") and (place or name != "copy") else None


def _steps(graph):
    """Return {node: its steps} for the nodes of the update that may run in blocks."""
    candidates = {
        node: _steps_of(node)
        for node in graph.nodes
        if node.op == "call_function" and node.meta.get("phase") == "update"
    }
    candidates = {node: steps for node, steps in candidates.items() if steps}
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
            if not _named(node)[2]
            for step in steps
            if any((user, step.to) not in stepped for user in step.to.users)
        ]
        if not escaped:
            return candidates
        for step in escaped:
            candidates[step.node].remove(step)


def _steps_of(node):
    """Return one step per element of the node's lists; for a node without lists, its single step."""
    named = _named(node)
    if named is None or node.kwargs.keys() - {"alpha", "value"} or named[2] and node.users:
        return []
    name, lists, in_place = named
    columns = [
        a if isinstance(a, (list, tuple)) else (a,) for a in node.args
    ]  # a scalar may stand for a list of scalars
    count = len(columns[0])
    results = columns[0] if in_place else _results(node, count) if lists else [node]
    if any(len(column) not in (1, count) for column in columns):
        return []
    rows = ([column[i if len(column) > 1 else 0] for column in columns] for i in range(count))
    steps = (_step(node, i, name, to, row) for i, (to, row) in enumerate(zip(results, rows)))
    return [step for step in steps if step is not None]


def _results(node, count):
    """Return the nodes that read the elements of a list of results."""
    readers = [None] * count
    for user in node.users:
        if user.target is not operator.getitem or readers[user.args[1]] is not None:
            return [None] * count
        readers[user.args[1]] = user
    return readers


def _step(node, index, name, to, values):
    """Return the step of one element, or None."""
    sign = -1 if name == "sub" else 1
    name = "add" if name == "sub" else name
    tensors = [v for v in values if isinstance(v, Node) and v.meta.get("tensor") is not None]
    scalars = values[len(tensors) :]
    factor = node.kwargs.get("alpha", node.kwargs.get("value", 1))
    if (
        to is None
        or values[: len(tensors)] != tensors
        or len(scalars) > 1
        or not all(map(_is_number, (*scalars, factor)))
        or not _alike([to, *tensors])
    ):
        return None
    if name == "copy":
        tensors = tensors[1:]
    if scalars and name in _WITH_NUMBER and len(tensors) == 1:
        if factor != 1:
            return None
        name, scalar = name + "_number", scalars[0]
    elif scalars and name not in ("lerp", *_THREE) or name == "lerp" and not scalars:
        return None
    else:
        scalar = scalars[0] if scalars else factor if name in _SCALED else 0
    if (
        len(tensors) != _operands(name)
        or name not in exact_steps(to.meta["tensor"].dtype)
        or sign < 0
        and isinstance(scalar, Node)
    ):
        return None
    return Step(node, index, name, to, tuple(tensors), sign * scalar if sign < 0 else scalar)


def _is_number(value):
    return (
        type(value) in (int, float)
        or isinstance(value, Node)
        and value.meta.get("tensor") is None
        and value.target is not operator.getitem
    )


def _alike(nodes):
    """Return True if the tensors are on the CPU and share one float dtype, shape and dense layout."""
    reference = nodes[0].meta.get("tensor")
    if (
        reference is None
        or reference.dtype not in (torch.float32, torch.float64)
        or reference.device.type != "cpu"
        or reference.stride is None
    ):
        return False
    if not all(type(size) is int for size in (*reference.shape, *reference.stride)):
        return False
    expected = 1
    for stride, size in sorted(
        (stride, size) for size, stride in zip(reference.shape, reference.stride) if size != 1
    ):
        if stride != expected:
            return False
        expected *= size
    return all(
        n.meta.get("tensor") is not None and _layout(n.meta["tensor"]) == _layout(reference) for n in nodes
    )


def _layout(info):
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

    def __init__(self, editor, steps, foreign):
        self.steps = sorted(steps, key=lambda step: (editor.order[step.node], step.index))
        self.nodes = {step.node for step in self.steps}
        self.first, self.last = editor.order[self.steps[0].node], editor.order[self.steps[-1].node]
        own = {step.to for step in self.steps if not _named(step.node)[2]}
        tensors = list(
            dict.fromkeys(t for step in self.steps for t in (step.to, *step.tensors) if t not in own)
        )
        self.written = [t for t in tensors if any(step.to is t for step in self.steps)]
        self.read = [t for t in tensors if t not in self.written]
        self.scalars = [step.scalar for step in self.steps]
        self.code = self._code(own)
        self.limit = self._limit(editor, foreign)
        bases = [base_of(t) for t in tensors]
        self.fits = (
            self.code is not None
            and self.last < self.limit
            and len(set(bases)) == len(bases)
            and all(base_of(t) is t for t in self.written)
        )
        if tensors[0].meta["tensor"].shape == () and len(self.steps) < _WORTH:
            self.fits = False  # a counter, which is read immediately

    def _code(self, own):
        """Return six integers per step (see csrc/ops.cpp), with scalars numbered like the steps. Return None
        if it takes too many tensors.
        """
        positions = {t: i for i, t in enumerate((*self.written, *self.read))}
        free = [len(positions) + i for i in range(_TEMPORARIES)]
        if len(positions) > _OPERANDS or not self.written:
            return None
        last = {t: i for i, step in enumerate(self.steps) for t in (step.to, *step.tensors) if t in own}
        code = []
        for i, step in enumerate(self.steps):
            operands = [positions[t] for t in step.tensors]
            if step.to not in positions:
                if not free:
                    return None
                positions[step.to] = free.pop(0)
            code += [STEPS.index(step.name), positions[step.to], *operands, *[-1] * (3 - len(operands)), i]
            free[:0] = [positions[t] for t in last if last[t] == i]
        return tuple(code)

    def _limit(self, editor, foreign):
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


def _batches(editor, steps):
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
    batch: list = []
    for lane in sorted(
        (Lane(editor, lane, foreign) for lane in _lanes(steps)),
        key=lambda lane: (lane.first, lane.steps[0].index),
    ):
        if not lane.fits:
            continue
        if batch and max(n.last for n in (*batch, lane)) >= min(n.limit for n in (*batch, lane)):
            yield batch
            batch = []
        batch.append(lane)
    yield batch


def _is_state(node):
    return (
        node.op == "placeholder" and node.meta.get("tensor") is not None and node.meta["tensor"].shape != ()
    )


def _lanes(steps):
    """Return lists of the steps that share memory."""
    lane_of: dict = {}
    for step in (step for of_node in steps.values() for step in of_node):
        lane = [step]
        for other in {id(lane_of[m]): lane_of[m] for m in _memory(step) if m in lane_of}.values():
            lane.extend(other)
        lane_of.update(dict.fromkeys((m for s in lane for m in _memory(s)), lane))
    return list({id(lane): lane for lane in lane_of.values()}.values())


def _memory(step):
    """Return keys for the memory of a step's tensors. The results of a compiled region do not overlap."""
    for t in (step.to, *step.tensors):
        base = base_of(t)
        yield base if base.op != "call_function" or hasattr(base.target, "_schema") else t


class Blocks:
    """A call of oneflow::blocks_ on lanes with the same steps."""

    def __init__(self, lanes, code):
        self.__name__, self.lanes, self.code, self.op = (
            "blocks_",
            lanes,
            code,
            torch.ops.oneflow.blocks_.default,
        )

    def __call__(self, written, read, common, own):
        self.op(written, read, self.lanes, self.code, common, own)
        increment_version(written)


def _place(editor, batch):
    """Insert the calls of a batch after its last step, one call for each list of steps."""
    after = max((step.node for lane in batch for step in lane.steps), key=editor.order.__getitem__)
    alike: dict = {}
    for lane in batch:
        alike.setdefault((lane.code, len(lane.written)), []).append(lane)
    for lanes in alike.values():
        columns = list(zip(*(lane.scalars for lane in lanes)))
        same = [i for i, column in enumerate(columns) if all(_equal(s, column[0]) for s in column)]
        other = [i for i in range(len(columns)) if i not in same]
        number = {i: n for n, i in enumerate((*same, *other))}
        code = tuple(number[n] if i % 6 == 5 else n for i, n in enumerate(lanes[0].code))
        arguments = (
            [t for lane in lanes for t in lane.written],
            [t for lane in lanes for t in lane.read],
            [lanes[0].scalars[i] for i in same],
            [lane.scalars[i] for lane in lanes for i in other],
        )
        with editor.graph.inserting_after(after):
            after = editor.graph.call_function(Blocks(len(lanes), code), arguments)
        after.meta["phase"] = "update"


def _equal(a, b):
    return a is b or not isinstance(a, Node) and repr(a) == repr(b)


def _drop(editor, node, gone):
    """Remove the elements `gone` from a node."""
    name, lists, place = _named(node)
    kept = [i for i in range(len(node.args[0]) if lists else 1) if i not in gone]
    for result in () if place or not lists else list(node.users):
        if result.args[1] in gone:
            editor.graph.erase_node(result)
        else:
            result.args = (node, kept.index(result.args[1]))
    if not kept:
        editor.graph.erase_node(node)
    elif gone:
        node.args = tuple([a[i] for i in kept] if isinstance(a, (list, tuple)) else a for a in node.args)
