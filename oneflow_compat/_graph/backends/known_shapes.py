"""Operators whose results' shapes depend on values, for a compiler that wants to know them.

The capture knows the lengths that decide these shapes, and the program is guarded by them (values.py): here such an
operator becomes one of the same schema that says so.
"""
from __future__ import annotations

import functools
import operator

import torch

aten = torch.ops.aten
DYNAMIC = {aten._pack_padded_sequence.default, aten._ctc_loss.default, aten._ctc_loss.Tensor}


def with_known_shapes(graph):
    """Replace them in the graph of a region, in place."""
    for node in graph.nodes:
        if node.target in DYNAMIC:
            parts = {u.args[1]: u.meta["tensor"] for u in node.users if u.target is operator.getitem}
            results = tuple(parts.get(i) for i in range(len(node.target._schema.returns)))
            node.target = _known(node.target, results)


@functools.cache
def _library():
    return torch.library.Library("oneflow_known", "FRAGMENT")


@functools.cache
def _known(target, results):
    """The operator with these results; one that nobody uses (None) is said to be empty."""
    name = f"{target._opname}_{target._overloadname}_{_known.cache_info().misses}"
    arguments, returns = str(target._schema).split("(", 1)[1].rsplit("->", 1)
    library = _library()
    library.define(f"{name}({arguments}->{returns}")
    library.impl(name, lambda *args: target(*args), "CompositeExplicitAutograd")

    def fake(*args):
        return tuple(torch.empty(0) if info is None else torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device=info.device) for info in results)

    torch.library.register_fake(f"oneflow_known::{name}", fake, lib=library)
    return getattr(torch.ops.oneflow_known, name).default
