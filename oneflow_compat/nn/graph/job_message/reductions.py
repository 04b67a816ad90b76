"""Operators of a graph's job that reduce or order a dimension.

Part of `calls.CALLS`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ...._message import data_type_number
from .views import dims, flag, ints, reshape, transpose

if TYPE_CHECKING:
    from .views import Arguments, CallWriter, OperatorWriter, PartWriter


def _reduced(op_type: str) -> CallWriter:
    def call(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str | None:
        if "other" in a:
            return None
        axis = dims(w, a["self"], a.get("dim"))
        return w.user(
            node,
            op_type,
            {"input_tensor": [a["self"]]},
            "output_tensor",
            {"axis": ints(*axis), "keepdims": flag(a.get("keepdim"))},
        )

    return call


def _arg(negated: bool) -> CallWriter:
    """Write argmax of the last dimension. Another dimension is moved there first, and the smallest element is
    the largest of -x.
    """

    def call(w: OperatorWriter, node: torch.fx.Node, a: Arguments, part: int | None = None) -> str | None:
        x, dim, keep = a["self"], a.get("dim"), a.get("keepdim")
        if not w.size(x):
            return None
        if negated:
            x = w.user(node, "negative", {"x": [x]}, "y", {}, w.size(x))
        if dim is None:
            x = reshape(w, node, x, [math.prod(w.size(x))])
        rank = len(w.size(x))
        dim = -1 if dim is None else dim % rank
        if dim in (-1, rank - 1):
            shape = w.size(x)[:-1]
            out = w.user(node, "argmax", {"in": [x]}, "out", {}, shape, torch.int64)
            return _expanded(w, node, out, shape) if keep else out
        x = transpose(w, node, x, [*range(dim), *range(dim + 1, rank), dim])
        shape = w.size(x)[:-1]
        out = w.user(node, "argmax", {"in": [x]}, "out", {}, shape, torch.int64)
        out = _expanded(w, node, out, shape)
        out = transpose(w, node, out, [*range(dim), rank - 1, *range(dim, rank - 1)])
        return out if keep else w.user(node, "squeeze", {"in": [out]}, "out", {"axes": ints(dim)})

    return call


def _expanded(w: OperatorWriter, node: torch.fx.Node, x: str, shape: list[int]) -> str:
    """Write the integers `x` of `shape` with a last dimension of size 1."""
    axis = {"axis": ("at_int32", len(shape))}
    return w.user(node, "expand_dims", {"in": [x]}, "out", axis, [*shape, 1], torch.int64)


def _largest(op_type: str, negated: bool) -> PartWriter:
    def part(w: OperatorWriter, node: torch.fx.Node, a: Arguments, index: int) -> str | None:
        return _arg(negated)(w, node, a) if index else _reduced(op_type)(w, node, a)

    return part


def _var(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str | None:
    if a.get("correction") not in (None, 0, 1):
        return None
    return w.user(
        node,
        "var",
        {"input": [a["self"]]},
        "output",
        {
            "dim": ints(*dims(w, a["self"], a.get("dim"))),
            "unbiased": flag(a.get("unbiased", a.get("correction") != 0)),
            "keepdim": flag(a.get("keepdim")),
            "dtype": ("at_data_type", data_type_number(w.dtype(node))),
        },
    )


def _sort(w: OperatorWriter, node: torch.fx.Node, a: Arguments, index: int) -> str | None:
    """Write a sort of the last dimension as the order of the elements and the values in that order."""
    last = len(w.size(a["self"])) - 1
    if last < 0 or a["dim"] % (last + 1) != last:
        return None
    order = {"direction": ("at_string", "DESCENDING" if a["descending"] else "ASCENDING")}
    places = w.user(node, "arg_sort", {"in": [a["self"]]}, "out", order, None, torch.int64)
    return (
        places
        if index
        else w.user(
            node,
            "dim_gather",
            {"input": [a["self"]], "index": [places]},
            "output",
            {"dim": ("at_int32", last)},
        )
    )


def _topk(w: OperatorWriter, node: torch.fx.Node, a: Arguments, index: int) -> str | None:
    last = len(w.size(a["self"])) - 1
    if last < 0 or a["dim"] % (last + 1) != last or not a["largest"]:
        return None
    places = w.user(
        node,
        "top_k",
        {"in": [a["self"]]},
        "out",
        {"k": ("at_int32", a["k"]), "sorted": flag(a["sorted"])},
        w.result(node),
        torch.int64,
    )
    return (
        places
        if index
        else w.user(
            node,
            "dim_gather",
            {"input": [a["self"]], "index": [places]},
            "output",
            {"dim": ("at_int32", last)},
        )
    )


REDUCTIONS = {
    "sum": _reduced("reduce_sum"),
    "amax": _reduced("reduce_max"),
    "amin": _reduced("reduce_min"),
    "prod": _reduced("reduce_prod"),
    "max": _reduced("reduce_max"),
    "min": _reduced("reduce_min"),
    "argmax": _arg(False),
    "argmin": _arg(True),
    "var": _var,
}
REDUCTION_PARTS = {
    "max": _largest("reduce_max", False),
    "min": _largest("reduce_min", True),
    "topk": _topk,
    "sort": _sort,
}
