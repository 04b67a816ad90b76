"""Conditions on learning rates and step counters that an optimizer branched on while it was captured.

RAdam changes its formula after some steps. A program contains the captured branch only. Before each call a
small program computes the condition again, and another program is captured if it differs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch._prims_common import make_contiguous_strides_for
from torch.fx import Node

from ..program.codegen import compile_program
from ..program.live_numbers import LiveNumbers
from ..program.operators import facts_of
from ..program.program import Program, roots, written_args

if TYPE_CHECKING:
    from torch.fx.node import Argument as FxArgument

aten = torch.ops.aten


@dataclass(frozen=True)
class Condition:
    """A comparison that must have the outcome of the capture for the program to serve a call.

    RAdam branches on the average length at step 5: Condition(<node of the length>, operator.gt, 5.0, False).
    """

    node: Node
    comparison: Callable[[Any, Any], object]
    operand: Node | torch.Tensor | float | None
    outcome: bool = True

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(n for n in (self.node, self.operand) if isinstance(n, Node))


def conditions_on(numbers: LiveNumbers) -> list[Condition]:
    """Return the conditions that the outcomes of comparisons are those of the capture."""
    return [Condition(node, operator.eq, outcome) for node, outcome in numbers.outcomes.items()]


def part(
    graph: torch.fx.Graph, outputs: Iterable[Node]
) -> tuple[torch.fx.Graph, dict[Node, Node], tuple[int, ...]]:
    """Return the part of a graph that computes the outputs, on copies of the inputs it writes.

    Returns (open fx graph, {node: copy}, indices of its inputs among the placeholders).
    """
    needed = _needed_for(graph, set(outputs))
    small = torch.fx.Graph()
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    inputs = tuple(i for i, n in enumerate(placeholders) if n in needed)
    copies = {placeholders[i]: small.placeholder(f"p{i}") for i in inputs}
    written = {root for n in graph.nodes if n in needed for root in roots(written_args(n))}
    for node in [n for n in copies if n in written]:
        copies[node] = small.call_function(aten.clone.default, (copies[node],))
    for node in graph.nodes:
        if node in needed and node.op in ("call_function", "get_attr"):
            fill = _filled(node)
            copies[node] = (
                small.call_function(aten.full.default, *fill)
                if fill
                else small.node_copy(node, copies.__getitem__)
            )
    return small, copies, inputs


def _needed_for(graph: torch.fx.Graph, outputs: set[Node]) -> set[Node]:
    """Return the outputs, the nodes that they use, and the nodes that write those."""
    needed = set(outputs)
    for node in reversed(graph.nodes):
        if node.op != "call_function":
            continue
        if node in needed or any(w in needed for w in roots(written_args(node))):
            needed.add(node)
            needed.update(() if _filled(node) else node.all_input_nodes)
    return needed


def _filled(node: Node) -> tuple[tuple[FxArgument, ...], dict[str, FxArgument]] | None:
    """Return the arguments of aten.full for zeros_like and similar operators, or None for another operator.

    Only the layout of their input matters, so no value is read.
    """
    fill = facts_of(node.target).fill
    if fill is None:
        return None
    shape, dtype, device, stride = node.meta["tensor"]
    if not all(type(n) is int for n in shape) or stride != make_contiguous_strides_for(shape):
        return None
    return (shape, fill), {"dtype": dtype, "device": device}


def guard_graph(
    graph: torch.fx.Graph, conditions: Sequence[Condition]
) -> tuple[torch.fx.Graph, tuple[int, ...]]:
    """Return (fx graph that computes the conditions, indices of its inputs among the placeholders)."""
    small, copies, inputs = part(graph, {node for condition in conditions for node in condition.nodes})
    truths = []
    for condition in conditions:
        right = condition.operand
        right = copies[right] if isinstance(right, Node) else right
        truth = small.call_function(condition.comparison, (copies[condition.node], right))
        truths.append(small.call_function(operator.eq, (truth, condition.outcome)))
    small.output(tuple(truths))
    return small, inputs


def compile_guard(program: Program) -> Callable[..., bool]:
    """Return a function of all slot values that returns True if every condition is as at the capture."""
    assert program.guard is not None, "the program has no conditions"
    graph, inputs = program.guard
    function = compile_program(program.with_(graph=graph), "guard")

    def holds(*values: Any) -> bool:
        try:
            with torch.no_grad():
                return all(function(*(values[i] for i in inputs)))
        except (RuntimeError, IndexError, ArithmeticError, ValueError):
            # an earlier condition that no longer holds had implied a shape; or build() raises, as it divides
            # by a number
            return False

    return holds
