"""Operators of oneflow._ext that inductor gets as plain torch, because it fuses them with their neighbours, and LSTM layers.

The others stay kernels: measured, a masked softmax is faster so (29 against 55 ms), bias and gelu take the same
time either way, and the masks of dropout belong to their kernel.
"""
from __future__ import annotations

import math

import torch

from . import recurrent


def _quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


def _quick_gelu_backward(x, dy):
    s = torch.sigmoid(1.702 * x)
    return dy * s * (1 + 1.702 * x * (1 - s))


def _square_relu(x):
    return torch.relu(x).square()


def _square_relu_backward(x, dy):
    return 2 * torch.relu(x) * dy


_SLOPE = 2 * math.sqrt(2 / math.pi)


def _gate(x):
    return torch.sigmoid(_SLOPE * (x + 0.044715 * x * x * x))


def _fast_gelu_mul(x, m):
    return x * _gate(x) * m


def _fast_gelu_mul_backward(x, m, dy):
    s = _gate(x)
    return dy * m * (s + _SLOPE * x * s * (1 - s) * (1 + 3 * 0.044715 * x * x)), dy * x * s


_POINT = {
    "quick_gelu": _quick_gelu, "quick_gelu_backward": _quick_gelu_backward, "square_relu": _square_relu, "square_relu_backward": _square_relu_backward,
    "fast_gelu_mul": _fast_gelu_mul, "fast_gelu_mul_backward": _fast_gelu_mul_backward,
}  # fmt: skip


def _plain(op):
    from ..._ops.custom.kernels import _NAME

    return _POINT.get(_NAME[op])


def _pointwise(op, inputs, outputs, scalars):
    function, dtype = _plain(op), inputs[0].dtype
    if function is None:
        return NotImplemented
    out = function(*(t.float() if dtype in (torch.float16, torch.bfloat16) else t for t in inputs))
    return [o.to(dtype) for o in (out if isinstance(out, tuple) else (out,))]


def _scale_tril(x, diagonal, scale, fill):
    rows, columns = (torch.arange(n, device=x.device) for n in x.shape[-2:])
    return torch.where(columns <= rows[:, None] + diagonal, x * scale, fill)


def table():
    """{operator: plain torch}; empty where the library is not loaded."""
    from ..._ops.custom import _ext

    if _ext.status() != "loaded":
        return {}
    return {
        torch.ops.oneflow.pointwise.default: _pointwise, torch.ops.oneflow.scale_tril.default: _scale_tril,
        torch.ops.aten.mkldnn_rnn_layer.default: recurrent.layer, torch.ops.aten.mkldnn_rnn_layer_backward.default: recurrent.layer_backward,
    }  # fmt: skip


def needs_python(graph) -> bool:
    """Does a node call an operator that inductor's C++ wrapper cannot: one that is not torch's and returns a list of tensors?"""
    return any(
        isinstance(n.target, torch._ops.OpOverload)
        and n.target.namespace not in ("aten", "prims")
        and any(isinstance(r.type, torch._C.ListType) for r in n.target._schema.returns)
        and not (n.target.namespace == "oneflow" and n.target._opname == "pointwise" and _plain(n.args[0]) is not None)
        for n in graph.nodes
    )
