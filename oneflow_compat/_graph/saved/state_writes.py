"""Programs as a file holds them: they write the state that a live graph binds to attributes after each run.

    self.hidden = torch.tanh(self.hidden + x)    # a live graph binds the result of the program
    hidden.copy_(tanh)                           # a saved program writes its own slot

A loaded graph has no attributes, so it meets the state of the call before only in the slots of its program.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch.fx import Graph, Node

from ..program import node_editing
from ..program.captured import StoredAttribute
from ..program.program import Program, Slot, roots
from ..program.python_values import MISSING, get_item
from ..program.pytree import flatten_containers
from ..program.symbolic import is_run_value

_aten = torch.ops.aten


def with_state_writes(
    program: Program, attributes: Iterable[StoredAttribute], values: Sequence[object]
) -> Program:
    """Return the program with a write for each stored tensor that the next call reads.

    `values`: the values of its slots now. What no slot holds is left out: no later call reads it.
    """
    states = _states(program, attributes, values)
    if not states:
        return program
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in program.graph.nodes:
        if node.op != "output":
            copies[node] = node_editing.copied(graph, node, copies)
    written = {copies[program.placeholders[slot]] for slot in states}

    def read(node: Node) -> Node:
        """Return the node, or a clone that has the value from before the writes."""
        node = copies[node]
        if written.isdisjoint(roots([node])):
            return node
        return _call(graph, _aten.clone.default, (node,), node)

    outputs: tuple[Node, ...] = program.graph.output_node().args[0]  # type: ignore[assignment]
    results = tuple(map(read, outputs))
    for slot, index in states.items():
        target = copies[program.placeholders[slot]]
        _call(graph, _aten.copy_.default, (target, results[index]), target)
    graph.output(results)
    slots = (replace(s, written=s.written or i in states) for i, s in enumerate(program.slots))
    return replace(program, graph=graph, slots=tuple(slots))


def _states(
    program: Program, attributes: Iterable[StoredAttribute], values: Sequence[object]
) -> dict[int, int]:
    """Return {slot: index of the output that it gets}."""
    slots = {id(value): i for i, value in enumerate(values) if isinstance(value, torch.Tensor)}
    index = program.out_spec.num_leaves - len(program.out_constants)  # index of the first stored value
    states = {}
    for attribute in attributes:
        now, spec = flatten_containers(get_item(attribute.container, attribute.key))
        for position, leaf in enumerate(attribute.leaves):
            if not is_run_value(leaf):
                continue
            tensor = now[position] if spec == attribute.spec and not attribute.appends else MISSING
            slot = slots.get(id(tensor))
            if slot is not None and _is_alike(program.slots[slot], program.graph.output_node(), index):
                states[slot] = index
            index += 1
    return states


def _is_alike(slot: Slot, output: Node, index: int) -> bool:
    stored = output.args[0][index].meta.get("tensor")  # type: ignore[index, union-attr]
    return stored is not None and (stored.shape, stored.dtype) == (slot.shape, slot.dtype)


def _call(graph: Graph, target: torch._ops.OpOverload, args: tuple[Node, ...], like: Node) -> Node:
    node = node_editing.call(graph, target, args, {})
    node.meta = copy.copy(like.meta)
    return node
