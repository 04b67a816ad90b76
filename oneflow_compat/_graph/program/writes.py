"""Which inputs of a program are written, and when."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.fx

from .program import Program, roots, written_args


def first_of_update(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes from the first one of the update on, as a set (empty for inference)."""
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
    """Indices of the slots whose version counter the runtime must raise.

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


def written_before_the_last_check(program: Program) -> list[int]:
    """Indices of the slots that are written before the last branch check."""
    aten, nodes = torch.ops.aten, list(program.graph.nodes)
    last = max((i for i, n in enumerate(nodes) if n.target is aten._assert_async.msg), default=0)
    written = written_inputs(nodes[:last])
    return [i for i, node in enumerate(program.placeholders) if node in written]


def written_inputs(nodes: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    """Placeholders that the nodes write, with views followed to their base."""
    return {
        r for n in nodes if n.op == "call_function" for r in roots(written_args(n)) if r.op == "placeholder"
    }
