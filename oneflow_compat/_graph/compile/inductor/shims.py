"""Operators that inductor calls without a C shim."""

from __future__ import annotations

import functools

import torch

from .decompositions import _plain as plain_pointwise
from .decompositions import table, talks


@functools.cache
def no_shim(target) -> bool:
    """Return True if this is a torch operator without a C shim that takes a list of SymInt."""
    if (
        not isinstance(target, torch._ops.OpOverload)
        or target.namespace != "aten"
        or any(r.alias_info for r in target._schema.returns)
    ):
        return False
    if not any(
        isinstance(a.real_type, torch._C.ListType)
        and isinstance(a.real_type.getElementType(), torch._C.SymIntType)
        for a in target._schema.arguments
    ):
        return False
    from torch._inductor import decomposition, lowering
    from torchgen.aoti.fallback_ops import inductor_fallback_ops

    made = target in lowering.lowerings and target not in lowering.fallbacks
    return (
        not made
        and str(target) not in inductor_fallback_ops
        and target not in decomposition.select_decomp_table()
        and target not in table()
    )


def needs_python(graph) -> bool:
    """Whether a node calls an operator that inductor's C++ wrapper cannot call.

    Such operators are collectives, torch operators without a C shim, and operators of other libraries that
    return a list of tensors.
    """
    return (
        talks(graph)
        or any(no_shim(n.target) for n in graph.nodes)
        or any(
            isinstance(n.target, torch._ops.OpOverload)
            and n.target.namespace not in ("aten", "prims")
            and any(isinstance(r.type, torch._C.ListType) for r in n.target._schema.returns)
            and not (
                n.target.namespace == "oneflow"
                and n.target._opname == "pointwise"
                and plain_pointwise(n.args[0]) is not None
            )
            for n in graph.nodes
        )
    )
