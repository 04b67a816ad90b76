"""Operators that inductor calls without a C shim."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from ...program.operators import has_collectives, has_new_results
from .decompositions import plain_pointwise, table

if TYPE_CHECKING:
    from torch.fx import Node


@functools.cache
def no_shim(target: object) -> bool:
    """Return True if the target is a torch operator without a C shim that takes a list of SymInt."""
    if (
        not isinstance(target, torch._ops.OpOverload)
        or target.namespace != "aten"
        or not has_new_results(target)
    ):
        return False
    if not any(
        isinstance(a.real_type, torch.ListType)
        and isinstance(a.real_type.getElementType(), torch._C.SymIntType)
        for a in target._schema.arguments
    ):
        return False
    from torch._inductor import decomposition, lowering
    from torchgen.aoti.fallback_ops import inductor_fallback_ops

    is_lowered = target in lowering.lowerings and target not in lowering.fallbacks
    return (
        not is_lowered
        and str(target) not in inductor_fallback_ops
        and target not in decomposition.select_decomp_table()
        and target not in table()
    )


def needs_python(graph: torch.fx.Graph) -> bool:
    """Whether a node calls an operator that inductor's C++ wrapper cannot call.

    Such operators are collectives, torch operators without a C shim, and operators of other libraries that
    return a list of tensors.
    """
    return has_collectives(graph) or any(no_shim(n.target) or _returns_list(n) for n in graph.nodes)


def _returns_list(node: Node) -> bool:
    """Return True if the node calls an operator of another library that returns a list of tensors."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in ("aten", "prims"):
        return False
    code: Any = node.args[0] if node.args else None
    if (target.namespace, target._opname) == ("oneflow", "pointwise") and plain_pointwise(code):
        return False  # inductor gets it as plain torch
    return any(isinstance(r.type, torch.ListType) for r in target._schema.returns)
