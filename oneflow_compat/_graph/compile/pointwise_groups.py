"""Runs of pointwise operators in forward and backward, block by block, with bitwise equal results.

    t = tanh(x); u = t + 1; y = u * h        ->        t, y = blocks([x, h])

ATen passes over memory once per operator. One call of oneflow::blocks (csrc/cpu/blocks.h) applies all
operators of a group to a block of each tensor while the block is in the cache. Only results that are read
outside of the group are stored. The steps are those of optimizer updates (update_steps.py), and are compared
with torch's operators alike.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from ..program.node_editing import copied
from ..program.program import Program, is_view, written_args
from .update_steps import Step, block_code, is_exact, operator_of, steps_of

_aten = torch.ops.aten
_WORTH = ((1 << 16, 2), (1 << 13, 3), (0, 5))  # (elements at least, operators at least): faster from there
_MOST, _MOST_TENSORS = 24, 16  # operators and tensors of a group


def in_groups(program: Program, skipped_passes: Collection[str] = ()) -> Program:
    """Return the program with its pointwise operators in groups, or the program itself if it has no group."""
    if "in_groups" in skipped_passes or not any(_groups(program.graph)):
        return program
    graph, copies = Graph(), dict[Node, Node]()
    for node in program.graph.nodes:
        copies[node] = copied(graph, node, copies)
    for group in _groups(graph):
        _replace(graph, group)
    return program.with_(graph=graph)


class Group:
    """Pointwise operators on tensors of one shape and dtype that may all run where the last one stands."""

    def __init__(self, steps: list[list[Step]]) -> None:
        self.nodes = [own[0].node for own in steps]
        self.steps = [step for own in steps for step in own]
        members = set(self.nodes)
        self.results = [n for n in self.nodes if any(user not in members for user in n.users)]
        operands = dict.fromkeys(t for step in self.steps for t in step.tensors)
        self.read = [t for t in operands if t not in members]
        fits = len(self.results) + len(self.read) <= _MOST_TENSORS
        self.code = block_code(self.steps, (*self.results, *self.read)) if fits else None

    def pays(self) -> bool:
        """Whether one call is faster, and needs no more memory than the operators one by one."""
        return (
            self.code is not None
            and bool(self.results)
            and len(self.results) + len(self.read) <= self._peak()
        )

    def _peak(self) -> int:
        """Return the largest number of tensors that the operators one by one keep at a time."""
        order = {node: i for i, node in enumerate(self.nodes)}
        last = {
            t: max((order.get(user, len(order)) for user in t.users), default=0)
            for t in (*self.read, *self.nodes)
        }
        outside = [t for t in self.read if t.op != "call_function"]  # the caller keeps them
        return max(
            sum(t in outside or last[t] >= i for t in self.read)
            + sum(last[t] >= i for t in self.nodes[:i])
            + 1
            for i in range(len(self.nodes))
        )


def _groups(graph: Graph) -> Iterator[Group]:
    """Yield the groups that pay. The caller may replace each one at once."""
    run: list[list[Step]] = []
    members: set[Node] = set()
    for node in graph.nodes:
        steps = _steps(node)
        if steps and len(run) < _MOST and (not run or _key(node) == _key(run[0][0].node)):
            run.append(steps)
            members.add(node)
        elif steps or not _may_run_before(node, members):
            yield from _paying(run)
            steps = _steps(node)  # it may read a result that the caller has replaced
            run, members = ([steps], {node}) if steps else ([], set())
    yield from _paying(run)


def _paying(run: list[list[Step]]) -> Iterator[Group]:
    if run and len(run) >= _fewest(run[0][0].node) and (group := Group(run)).pays():
        yield group


def _fewest(node: Node) -> int:
    """Return the number of operators from which one call is faster than the operators one by one."""
    elements = math.prod(node.meta["tensor"].shape)
    return next(count for least, count in _WORTH if elements >= least)


def _key(node: Node) -> tuple[Any, ...]:
    info = node.meta["tensor"]
    return info.shape, info.dtype, node.meta.get("phase")


def _may_run_before(node: Node, members: set[Node]) -> bool:
    """Whether a node between two operators of a group may run before them, and takes no memory."""
    is_free = node.op in ("placeholder", "get_attr") or node.target is operator.getitem or is_view(node)
    return is_free and members.isdisjoint(node.all_input_nodes)


def _steps(node: Node) -> list[Step]:
    """Return the steps of an operator that may be in a group, or an empty list."""
    info = node.meta.get("tensor")
    if node.op != "call_function" or info is None or node.meta.get("phase") == "update":
        return []
    if not _is_contiguous(info) or written_args(node):
        return []
    if node.target is _aten.pow.Tensor_Scalar:
        return _products(node)
    op = operator_of(node)
    return steps_of(node) if op is not None and not op.on_lists and not op.in_place else []


def _products(node: Node) -> list[Step]:
    """Return x * x, or (x * x) * x, for a power that ATen computes so."""
    base, exponent = node.args
    if not isinstance(base, Node) or type(exponent) not in (int, float) or exponent not in (2, 3):
        return []
    info = node.meta["tensor"]
    if info.device.type != "cpu" or info.dtype not in (torch.float32, torch.float64):
        return []
    if base.meta.get("tensor") != info or not _is_contiguous(base.meta["tensor"]):
        return []
    if not is_exact("mul", info.dtype):
        return []
    square, cube = (Step(node, 0, "mul", node, tensors, 0) for tensors in ((base, base), (node, base)))
    return [square] if exponent == 2 else [square, cube]


def _is_contiguous(info: Any) -> bool:
    """Whether a tensor has static sizes and lies row by row. ATen's result does if its operands do."""
    if info.stride is None or not all(type(n) is int for n in (*info.shape, *info.stride)):
        return False
    expected = 1
    for size, stride in zip(reversed(info.shape), reversed(info.stride)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _replace(graph: Graph, group: Group) -> None:
    """Insert the call of a group after its last operator, and remove its operators."""
    last = group.nodes[-1]
    scalars = [step.scalar for step in group.steps]
    with graph.inserting_after(last):
        arguments = (group.read, len(group.results), list(group.code or ()), scalars)
        call = graph.call_function(torch.ops.oneflow.blocks.default, arguments)
    call.meta.update({key: value for key, value in last.meta.items() if key != "tensor"})
    after = call
    for index, result in enumerate(group.results):
        with graph.inserting_after(after):
            after = graph.call_function(operator.getitem, (call, index))
        after.meta.update(result.meta)
        result.replace_all_uses_with(after)
    for node in reversed(group.nodes):
        graph.erase_node(node)
