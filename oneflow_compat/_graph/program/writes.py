"""Which inputs of a program are written, and when, and which share memory."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.fx

from ..._global.tensor import memory_of
from .memory import overlapping, storage_of
from .program import Program, Slot, roots, written_args


def first_of_update(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Return the nodes from the first one of the update on (none for inference)."""
    late, seen = set(), False
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if not seen and node.op == "call_function" and node.meta.get("phase") == "update":
            seen = True
        if seen:
            late.add(node)
    return late


def silent_writes(program: Program) -> list[int]:
    """Return the indices of the slots whose version counter the runtime must raise.

    These are written by compiled regions and fused optimizers; every other operator of the update raises the
    counter by itself. Optimizer state is left out, because nobody differentiates through it.
    """
    late = first_of_update(program.graph)
    written = written_inputs(n for n in program.graph.nodes if n not in late or "_fused_" in str(n.target))
    return [
        i
        for i, (node, slot) in enumerate(zip(program.placeholders, program.slots))
        if node in written and slot.role != "optim"
    ]


def written_inputs(nodes: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    """Return the placeholders that the nodes write, with views followed to their base."""
    return {
        r for n in nodes if n.op == "call_function" for r in roots(written_args(n)) if r.op == "placeholder"
    }


# ------------------------------------------------------------------ Inputs of a program that share memory
# Passes and compilers take the inputs of a program for separate memory. If the program writes an input that
# overlaps with another one, it has to run operator by operator, as eager does.


def overlapping_slots(slots: Sequence[Slot], values: Sequence[Any]) -> frozenset[tuple[int, int]]:
    """Return the pairs of slots that overlap in memory, with at least one slot of each pair written."""
    by_storage: dict[int, list[int]] = {}
    for index, value in enumerate(values):
        storage = storage_of(value)
        if storage is not None:
            by_storage.setdefault(storage, []).append(index)
    return frozenset(
        pair
        for indices in by_storage.values()
        for pair in itertools.combinations(indices, 2)
        if any(slots[i].written for i in pair) and overlapping([memory_of(values[i]) for i in pair])
    )
