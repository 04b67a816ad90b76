"""ATen operators that OneFlow's job writes differently: with settings of its own, or as several operators.
Recorded from OneFlow 0.9.0.

CALLS is {ATen's name: function(writer, node, ATen's arguments by name) -> name of the value}. PARTS is the
same for one result of an operator with several results, with the position of the result. A function returns
None for a case it does not cover; the operator then keeps ATen's name. Sizes are those of the program; an
operator without sizes keeps ATen's name too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...._message import data_type_number
from .layers import LAYER_PARTS, LAYERS
from .reductions import REDUCTION_PARTS, REDUCTIONS
from .views import VIEW_PARTS, VIEWS, dims, flag, numbers, typed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .views import Arguments, CallWriter, OperatorWriter, Settings


_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "lt": "less",
    "le": "less_equal",
}
_LOGIC = ("logical_and", "logical_or", "logical_xor")


def _compare(op_type: str) -> CallWriter:
    def call(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
        operand = a["other"]
        if isinstance(operand, torch.fx.Node):
            return w.user(
                node, f"broadcast_{_COMPARISONS[op_type]}", {"x": [a["self"]], "y": [operand]}, "z", {}
            )
        return w.user(
            node, f"scalar_logical_{_COMPARISONS[op_type]}", {"in": [a["self"]]}, "out", numbers(operand)
        )

    return call


def _both(same: str, broadcast: str) -> CallWriter:
    """Return a writer that uses one operator name for tensors of equal size and another name otherwise."""

    def call(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str | None:
        operand = a.get("other", a.get("exponent"))
        if not isinstance(operand, torch.fx.Node) or not isinstance(a["self"], torch.fx.Node):
            return None
        return w.user(
            node,
            same if w.size(a["self"]) == w.size(operand) else broadcast,
            {"x": [a["self"]], "y": [operand]},
            "z",
            {},
        )

    return call


def _with_number(name: str, both: CallWriter) -> CallWriter:
    def call(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str | None:
        if isinstance(a["other"], torch.fx.Node):
            return both(w, node, a)
        return w.user(node, name, {"in": [a["self"]]}, "out", numbers(a["other"]))

    return call


def _add(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    """Write add_n for tensors of equal size. A factor of the second tensor becomes a separate product."""
    x, y, alpha = a["self"], a["other"], a["alpha"]
    if not isinstance(y, torch.fx.Node):
        return w.scalar(node, "add", x, y * alpha)
    if alpha != 1:
        y = w.user(node, "scalar_mul", {"in": [y]}, "out", numbers(alpha), w.size(y))
    if w.size(x) == w.size(y):
        return w.user(node, "add_n", {"in": [x, y]}, "out", {})
    return w.user(node, "broadcast_add", {"x": [x], "y": [y]}, "z", {})


def _sub(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    x, y, alpha = a["self"], a["other"], a["alpha"]
    if not isinstance(y, torch.fx.Node):
        return w.scalar(node, "add", x, -y * alpha)
    if alpha != 1:
        y = w.user(node, "scalar_mul", {"in": [y]}, "out", numbers(alpha), w.size(y))
    return w.user(node, "broadcast_sub", {"x": [x], "y": [y]}, "z", {})


def _rsub(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str | None:
    if isinstance(a["other"], torch.fx.Node) or a["alpha"] != 1:
        return None
    return w.scalar(node, "add", w.scalar(node, "mul", a["self"], -1), a["other"])


def _clamp(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str | None:
    low, high = a.get("min"), a.get("max")
    if any(isinstance(v, torch.fx.Node) for v in (low, high)) or (low is None and high is None):
        return None
    settings: Settings = {}
    op_type = "clip_by_scalar" + ("_max" if low is None else "_min" if high is None else "")
    for name, value in (("min", low), ("max", high)):
        if value is not None:
            settings |= typed(
                w.dtype(a["self"]).is_floating_point, value, (f"floating_{name}", f"integral_{name}")
            )
    return w.user(node, op_type, {"x": [a["self"]]}, "y", settings)


def _masked_fill(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str | None:
    if isinstance(a["value"], torch.fx.Node):
        return None
    settings = {
        "has_bool_operand": flag(False),
        "bool_operand": flag(False),
        **numbers(a["value"] * 1.0 if w.dtype(a["self"]).is_floating_point else a["value"]),
    }
    return w.user(node, "masked_fill", {"x": [a["self"]], "mask": [a["mask"]]}, "out", settings)


def _cast(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    return w.user(
        node,
        "cast",
        {"in": [a["self"]]},
        "out",
        {"dtype": ("at_data_type", data_type_number(w.dtype(node))), "pin_memory": flag(False)},
    )


def _constant(value: float | str) -> CallWriter:
    """Write a tensor filled with one value; `value` is that value or the name of ATen's argument."""

    def call(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str | None:
        fill, dtype = a[value] if isinstance(value, str) else value, w.dtype(node)
        if isinstance(fill, (torch.fx.Node, complex)):
            return None
        floating = dtype.is_floating_point
        return w.user(
            node,
            "constant",
            {},
            "out",
            {
                "is_floating_value": flag(floating),
                **typed(floating, fill, ("floating_value", "integer_value")),
                "dtype": ("at_data_type", data_type_number(dtype)),
                "shape": ("at_shape", w.result(node)),
            },
        )

    return call


def _arange(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str | None:
    start, limit, delta = a.get("start", 0), a["end"], a.get("step", 1)
    if not all(isinstance(v, (int, float)) for v in (start, limit, delta)):
        return None
    floating = w.dtype(node).is_floating_point
    settings = {"dtype": ("at_data_type", data_type_number(w.dtype(node)))}
    for name, value in (("start", start), ("limit", limit), ("delta", delta)):
        settings |= typed(floating, value, (f"float_{name}", f"integer_{name}"))
    return w.user(node, "arange", {}, "out", settings)


def _concat(op_type: str) -> CallWriter:
    def call(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
        rank = len(w.result(node))
        return w.user(
            node,
            op_type,
            {"in": list(a["tensors"])},
            "out",
            {
                "axis": ("at_int64", a["dim"] % rank),
                "max_dim_size": ("at_int64", w.result(node)[a["dim"]]),
            },
        )

    return call


def _gathered(op_type: str, names: Mapping[str, str], output: str, dim: tuple[str, str] | None) -> CallWriter:
    def call(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
        setting = {} if dim is None else {dim[0]: (dim[1], dims(w, a["self"], a["dim"])[0])}
        return w.user(node, op_type, {ours: [a[theirs]] for ours, theirs in names.items()}, output, setting)

    return call


def _triangle(op_type: str, settings: Settings) -> CallWriter:
    def call(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
        return w.user(
            node, op_type, {"in": [a["self"]]}, "out", {"diagonal": ("at_int64", a["diagonal"]), **settings}
        )

    return call


_FILL = {
    "is_floating_fill_value": flag(False),
    "floating_fill_value": ("at_double", 0.0),
    "integer_fill_value": ("at_int64", 0),
}
_FMOD = _both("broadcast_fmod", "broadcast_fmod")
CALLS = {
    **LAYERS,
    **REDUCTIONS,
    **VIEWS,
    **{op_type: _compare(op_type) for op_type in _COMPARISONS},
    **{op_type: _both(f"broadcast_{op_type}", f"broadcast_{op_type}") for op_type in _LOGIC},
    "maximum": _both("elementwise_maximum", "broadcast_maximum"),
    "minimum": _both("elementwise_minimum", "broadcast_minimum"),
    "pow": _both("pow", "broadcast_pow"),
    "atan2": _both("atan2", "atan2"),
    "add": _add,
    "sub": _sub,
    "rsub": _rsub,
    "floor_divide": _with_number("scalar_floordiv", _both("floordiv", "floordiv")),
    "fmod": _with_number("scalar_fmod", _FMOD),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "masked_fill": _masked_fill,
    "_to_copy": _cast,
    "zeros": _constant(0),
    "ones": _constant(1),
    "full": _constant("fill_value"),
    "zeros_like": _constant(0),
    "ones_like": _constant(1),
    "full_like": _constant("fill_value"),
    "new_zeros": _constant(0),
    "new_ones": _constant(1),
    "new_full": _constant("fill_value"),
    "arange": _arange,
    "cat": _concat("concat"),
    "stack": _concat("stack"),
    "gather": _gathered("dim_gather", {"input": "self", "index": "index"}, "output", ("dim", "at_int32")),
    "index_select": _gathered("gather", {"in": "self", "indices": "index"}, "out", ("axis", "at_int64")),
    "tril": _triangle("tril", _FILL),
    "triu": _triangle("triu", {}),
}
PARTS = {
    **LAYER_PARTS,
    **REDUCTION_PARTS,
    **VIEW_PARTS,
}
