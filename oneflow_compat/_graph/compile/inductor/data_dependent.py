"""Operators that torch's symbolic tensors cannot handle: the shape depends on values, or the symbolic form
refuses what the kernel takes.

The capture knows the lengths and masks that decide these shapes, and guards the program by them
(branch_values.py). Here such an operator becomes one of the same schema, with integers in place of symbols,
that declares the recorded shapes. An operator without a C shim that takes a list of symbols is treated alike:
inductor's C++ wrapper passes such a list as a list of anything, which put each kernel into its own file
(resizing with antialias in SigLIP 2: 287 instead of 100 s of compiling on a busy core).
"""

from __future__ import annotations

import functools
import operator

import torch

from .shims import no_shim

aten = torch.ops.aten
DYNAMIC = {
    aten._pack_padded_sequence.default,
    aten._ctc_loss.default,
    aten._ctc_loss.Tensor,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.repeat_interleave.Tensor,
    aten.bincount.default,
    aten._unique2.default,
    aten.unique_consecutive.default,
    aten.unique_dim.default,
    aten._grouped_mm.default,
    aten._cudnn_rnn.default,
    aten._cudnn_rnn_backward.default,
    aten.linalg_lstsq.default,
}
_MASKS = torch.bool, torch.uint8


def with_known_shapes(graph):
    """Replace such operators in the graph of a region, in place."""
    for node in graph.nodes:
        if (
            node.target in DYNAMIC
            or no_shim(node.target)
            and not _sparse(node)
            or node.target is aten.index.Tensor
            and any(i is not None and i.meta["tensor"].dtype in _MASKS for i in node.args[1])
        ):
            parts = _parts(node)
            results = (
                tuple(parts.get(i) for i in range(len(node.target._schema.returns)))
                if node.meta["tensor"] is None
                else node.meta["tensor"]
            )
            node.target = _known(node.target, results)


def _parts(node):
    """Return {index of a result: its record, for a list of tensors a tuple of records}."""
    parts = {u.args[1]: (u, u.meta["tensor"]) for u in node.users if u.target is operator.getitem}
    return {i: _listed(_parts(part)) if info is None else info for i, (part, info) in parts.items()}


def _listed(parts):
    return tuple(parts.get(i) for i in range(max(parts, default=-1) + 1))


def _sparse(node) -> bool:
    return node.meta["tensor"] is not None and node.meta["tensor"].stride is None


def _checked(target, results, *args, **kwargs):
    """Run the operator and check that its results match the record, because the code compiled after it
    reads that much memory. (A saved program may claim any size.)
    """
    outputs = target(*args, **kwargs)
    for output, info in zip(outputs, results) if type(results) is tuple else ((outputs, results),):
        if (
            isinstance(output, torch.Tensor)
            and info is not None
            and (tuple(output.shape), output.dtype, output.stride()) != (info.shape, info.dtype, info.stride)
        ):
            raise RuntimeError(
                f"{target} gave {output.dtype}{list(output.shape)} of strides {list(output.stride())}, the"
                f" program was made for {info.dtype}{list(info.shape)} of {list(info.stride)}"
            )
    return outputs


@functools.cache
def _library():
    return torch.library.Library("oneflow_known", "FRAGMENT")


@functools.cache
def _known(target, results):
    """Return the operator that declares these results (or this single result). A result that nobody uses
    (None) is declared empty.
    """
    name = f"{target._opname}_{target._overloadname}_{_known.cache_info().misses}"
    arguments, returns = str(target._schema).split("(", 1)[1].rsplit("->", 1)
    library = _library()
    library.define(f"{name}({arguments}->{returns}".replace("SymInt", "int"))
    library.impl(name, functools.partial(_checked, target, results), "CompositeExplicitAutograd")

    lists = [isinstance(r.type, torch._C.ListType) for r in target._schema.returns]

    def empty(info):
        if type(info) is tuple:
            return [empty(i) for i in info]
        return (
            torch.empty(0)
            if info is None
            else torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device=info.device)
        )

    def fake(*args, **kwargs):
        return (
            tuple(empty(() if info is None and listed else info) for info, listed in zip(results, lists))
            if type(results) is tuple
            else empty(results)
        )

    torch.library.register_fake(f"oneflow_known::{name}", fake, lib=library)
    return getattr(torch.ops.oneflow_known, name).default
