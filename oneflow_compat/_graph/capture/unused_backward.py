"""A backward() whose gradients nobody uses: a graph leaves p.grad as it was, so without an optimizer such a
call does nothing.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ..program.program import roots, written_args

if TYPE_CHECKING:
    from torch.fx import Graph

    from .interfaces import EngineInterface


def backward_is_unused(graph: Graph) -> bool:
    """Whether build() called backward(), and neither a result nor a write to the graph's state depends on a
    gradient.
    """
    backward = {n for n in graph.nodes if n.meta.get("phase") == "backward"}
    return bool(backward) and not backward & _used(graph)


def _used(graph: Graph) -> Any:
    used = set()
    for node in reversed(graph.nodes):
        writes = (root for root in roots(written_args(node))) if node.op == "call_function" else ()
        if (
            node.op == "output"
            or node in used
            or any(root.op == "placeholder" or root in used for root in writes)
        ):
            used.add(node)
            used.update(node.all_input_nodes)
    return used


def warn_of_unused_backward(engine: EngineInterface) -> None:
    """One warning of a graph."""
    if not engine.told_of_backward:
        engine.told_of_backward = True
        warnings.warn(
            f"graph {engine.name}: backward() has no effect, because the graph has no optimizer and build()"
            " returns nothing that depends on a gradient. p.grad stays as it was before the call. Train with"
            " add_optimizer(), or return p.grad from build().",
            stacklevel=2,
        )
