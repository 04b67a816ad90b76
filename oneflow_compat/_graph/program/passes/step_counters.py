"""Increment the step counters of a fused optimizer in one call. EXACT.

`_foreach_add_(steps, 1)` runs one operator per parameter on the CPU, several microseconds each. The fused SGD
operator visits a tensor in well under one microsecond. It computes step - (-1) * 1, which rounds as step + 1
does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from .patterns import Editor

if TYPE_CHECKING:
    from ..program import Program


aten = torch.ops.aten


def count_together(program: Program) -> Program:
    """Replace _foreach_add_ of 1 to float32 scalars on the CPU by one fused operator."""
    graph, editor = program.graph, Editor(program)
    for node in editor.nodes(aten._foreach_add_.Scalar, aten._foreach_add_.Tensor):
        counters: Any = node.args[0]
        if editor.number(node.args[1]) != 1 or node.kwargs.get("alpha", 1) != 1 or node.users:
            continue
        if any(not _is_counter(n) for n in counters):
            continue
        increment = node.args[1]
        if not isinstance(increment, Node) or increment.meta["tensor"].dtype is not torch.float32:
            program = program.with_(
                constants={**program.constants, "one": torch.ones((), dtype=torch.float32)}
            )
            with graph.inserting_before(node):
                increment = graph.get_attr("one")
        with graph.inserting_before(node):
            new = graph.call_function(
                aten._fused_sgd_.default,
                (list(counters), [increment] * len(counters), []),
                dict(
                    weight_decay=0.0,
                    momentum=0.0,
                    lr=-1.0,
                    dampening=0.0,
                    nesterov=False,
                    maximize=False,
                    is_first_step=False,
                ),
            )
        new.meta.update(node.meta)
        graph.erase_node(node)
    return program


def _is_counter(node: Node) -> bool:
    info = node.meta.get("tensor")
    return (
        node.op == "placeholder"
        and info is not None
        and info.shape == ()
        and info.dtype is torch.float32
        and info.device.type == "cpu"
    )
