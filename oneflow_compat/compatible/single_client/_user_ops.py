"""Operators by their OneFlow type name, for user_op_builder and builtin_op: {type: function(inputs, attrs)}."""
from __future__ import annotations

import torch

from . import _array, _indexing, _math

OPS = {
    "add_n": lambda i, a: _math.add_n(i["in"]),
    "relu": lambda i, a: torch.relu(i.get("x", i.get("in"))[0]),
    "sigmoid": lambda i, a: torch.sigmoid(_sole(i)),
    "tanh": lambda i, a: torch.tanh(_sole(i)),
    "gelu": lambda i, a: torch.nn.functional.gelu(_sole(i)),
    "softmax": lambda i, a: torch.softmax(_sole(i), a.get("axis", -1)),
    "cast": lambda i, a: _sole(i).to(a["dtype"]),
    "reshape": lambda i, a: _sole(i).reshape(tuple(a["shape"])),
    "transpose": lambda i, a: _sole(i).permute(tuple(a["perm"])),
    "concat": lambda i, a: torch.cat(i["in"], a.get("axis", 0)),
    "gather": lambda i, a: _indexing.gather(i["in"][0], i["indices"][0], axis=a.get("axis", 0)),
    "matmul": lambda i, a: _array.matmul(i["a"][0], i["b"][0], a.get("transpose_a", False), a.get("transpose_b", False), a.get("alpha", 1.0)),
    "constant": lambda i, a: torch.full(tuple(a["shape"]), a["floating_value"] if a.get("is_floating_value") else a["integer_value"], dtype=a["dtype"]),
    "broadcast_add": lambda i, a: i["x"][0] + i["y"][0],
    "broadcast_sub": lambda i, a: i["x"][0] - i["y"][0],
    "broadcast_mul": lambda i, a: i["x"][0] * i["y"][0],
    "broadcast_div": lambda i, a: i["x"][0] / i["y"][0],
    "scalar_add": lambda i, a: _sole(i) + _scalar(a),
    "scalar_mul": lambda i, a: _sole(i) * _scalar(a),
    "reduce_sum": lambda i, a: _math.reduce_sum(_sole(i), a.get("axis"), a.get("keepdims", False)),
    "identity": lambda i, a: _sole(i),
}


def _sole(inputs):
    (blobs,) = inputs.values()
    return blobs[0]


def _scalar(attrs):
    return attrs["float_operand"] if attrs.get("has_float_operand") else attrs["int_operand"]


def run(op_type, inputs, attrs):
    """The result of one operator. `torch.ops.oneflow.<type>` (a loaded library) serves the types not listed here."""
    function = OPS.get(op_type)
    if function is not None:
        return function(inputs, attrs)
    if op_type in _math_names() and len(inputs) <= 2:
        from . import math

        return getattr(math, op_type)(*[b for blobs in inputs.values() for b in blobs])
    found = getattr(torch.ops.oneflow, op_type, None) if hasattr(torch.ops, "oneflow") else None
    if found is not None:
        return found(*[b for blobs in inputs.values() for b in blobs], **attrs)
    from ._misc import _no_op

    raise _no_op(op_type)


def _math_names():
    from ..._tables.legacy_math import MATH

    return MATH
