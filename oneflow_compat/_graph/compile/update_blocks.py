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
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch._C import _increment_version as increment_version
from torch.fx import Node

from ..program.passes.patterns import Editor, base_of, users_of_memory
from ..program.program import Program, written_args
from .update_steps import Scalar, Step, Steps, block_code, operator_of, steps_of_update, update_nodes

_MOST_OPERANDS = 12
_WORTH = 3  # operators that a call replaces
_CODES = 6  # integers per step in the code of oneflow::blocks_ (csrc/ops.cpp)


def in_blocks(program: Program, skipped_passes: Collection[str] = ()) -> Program:
    """Return the program with its update in blocks. Return the program itself if nothing can be moved, or if
    this pass is skipped.
    """
    if "in_blocks" in skipped_passes or not any(map(operator_of, update_nodes(program.graph))):
        return program
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    program = program.with_(graph=graph)
    editor, steps = Editor(program), steps_of_update(graph)
    moved: set[tuple[Node, int]] = set()
    for batch in _batches(editor, steps):
        if sum(len(lane.steps) for lane in batch) < _WORTH:
            continue
        moved.update((step.node, step.index) for lane in batch for step in lane.steps)
        _insert_calls(editor, batch)
    for node in reversed(steps):
        _drop(editor, node, {step.index for step in steps[node] if (node, step.index) in moved})
    return program


class Lane:
    """The steps of one parameter in order, the tensors they write and read, and the last position that all of
    them may be moved to.
    """

    def __init__(self, editor: Editor, steps: list[Step], foreign: list[float]) -> None:
        self.steps = sorted(steps, key=lambda step: (editor.order[step.node], step.index))
        self.nodes = {step.node for step in self.steps}
        self.first, self.last = editor.order[self.steps[0].node], editor.order[self.steps[-1].node]
        temporaries = {step.to for step in self.steps if not operator_of(step.node).in_place}
        operands = dict.fromkeys(t for step in self.steps for t in (step.to, *step.tensors))
        targets = {step.to for step in self.steps}
        self.written = [t for t in operands if t in targets and t not in temporaries]
        self.read = [t for t in operands if t not in targets]
        tensors = [*self.written, *self.read]
        self.scalars = [step.scalar for step in self.steps]
        self.code = (
            block_code(self.steps, tensors) if self.written and len(tensors) <= _MOST_OPERANDS else None
        )
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
    op = operator_of(node)
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
