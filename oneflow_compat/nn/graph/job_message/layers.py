"""Operators of a graph's job that layers of a network run: norms, activations, upsampling, products.

Part of `calls.CALLS`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...._message import data_type_number
from .views import flag, ints, longs, numbers, reshape, swapped, typed

if TYPE_CHECKING:
    import torch

    from .views import Arguments, CallWriter, OperatorWriter


def _softmax(op_type: str, output: str) -> CallWriter:
    def call(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
        return swapped(
            w, node, a["self"], a["dim"], lambda x: w.user(node, op_type, {"in": [x]}, output, {}, w.size(x))
        )

    return call


def _gelu(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    return w.user(node, "fast_gelu" if a["approximate"] == "tanh" else "gelu", {"in": [a["self"]]}, "out", {})


def _elu(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    if a["scale"] != 1:
        return w.user(node, "selu", {"in": [a["self"]]}, "out", {})
    return w.user(node, "elu", {"in": [a["self"]]}, "out", {"alpha": ("at_double", float(a["alpha"]))})


def _pad(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    pad, rank, floating = list(a["pad"]), len(w.size(a["self"])), w.dtype(a["self"]).is_floating_point
    before = [0] * (rank - len(pad) // 2) + pad[-2::-2]
    after = [0] * (rank - len(pad) // 2) + pad[::-2]
    return w.user(
        node,
        "pad",
        {"x": [a["self"]]},
        "y",
        {
            "padding": longs(*pad),
            "padding_before": longs(*before),
            "padding_after": longs(*after),
            **typed(floating, a["value"], ("floating_constant_value", "integral_constant_value")),
        },
    )


def _upsample(op_type: str, dims: int) -> CallWriter:
    """Write an upsampling. OneFlow keeps the given scales, or those that follow from the sizes."""

    def call(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str | None:
        if "self" not in a:
            return None
        x, out = w.size(a["self"])[2:], w.result(node)[2:]
        scales = [
            a.get(s) or size / old
            for s, size, old in zip(("scales",) if dims == 1 else ("scales_h", "scales_w"), out, x)
        ]
        has_scales = any(a.get(s) for s in ("scales", "scales_h"))
        settings = {
            "data_format": ("at_string", "channels_first"),
            "output_size": longs(*([] if has_scales else out)),
        }
        settings |= dict(
            zip(
                ("scale_factor",) if dims == 1 else ("height_scale", "width_scale"),
                (("at_double", float(s)) for s in scales),
            )
        )
        if "align_corners" in a:
            settings["align_corners"] = flag(a["align_corners"])
        return w.user(node, op_type, {"x": [a["self"]]}, "y", settings)

    return call


def _product(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    settings = {"transpose_a": flag(False), "transpose_b": flag(False), "alpha": ("at_double", 1.0)}
    return w.user(node, "batch_matmul", {"a": [a["self"]], "b": [a["mat2"]]}, "out", settings)


def _embedding(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    return w.user(
        node, "gather", {"in": [a["weight"]], "indices": [a["indices"]]}, "out", {"axis": ("at_int64", 0)}
    )


def _layer_norm(w: OperatorWriter, node: torch.fx.Node, a: Arguments, index: int) -> str | None:
    if index:
        return None
    rank, scale, center = len(w.size(a["input"])), a["weight"] is not None, a["bias"] is not None
    axis = rank - len(a["normalized_shape"])
    inputs = {
        "x": [a["input"]],
        **({"gamma": [a["weight"]]} if scale else {}),
        **({"beta": [a["bias"]]} if center else {}),
    }
    return w.user(
        node,
        "layer_norm",
        inputs,
        "y",
        {
            "center": flag(center),
            "scale": flag(scale),
            "begin_norm_axis": ("at_int64", axis),
            "begin_params_axis": ("at_int64", axis),
            "epsilon": ("at_double", a["eps"]),
        },
        w.size(a["input"]),
    )


def _batch_norm(w: OperatorWriter, node: torch.fx.Node, a: Arguments, index: int) -> str | None:
    if index:
        return None
    names = {
        "x": "input",
        "moving_mean": "running_mean",
        "moving_variance": "running_var",
        "gamma": "weight",
        "beta": "bias",
    }
    return w.user(
        node,
        "normalization",
        {ours: [a[theirs]] for ours, theirs in names.items() if a.get(theirs) is not None},
        "y",
        {
            "axis": ("at_int32", 1),
            "epsilon": ("at_float", a["eps"]),
            "momentum": ("at_float", 1 - a["momentum"]),
            "training": flag(a.get("training")),
        },
        w.size(a["input"]),
    )


def _group_norm(w: OperatorWriter, node: torch.fx.Node, a: Arguments, index: int) -> str | None:
    if index:
        return None
    shape, rows = list(w.size(a["input"])), math.prod(w.size(a["input"])) // (a["N"] * a["group"])
    x, group_shape = reshape(w, node, a["input"], [a["N"], a["group"], rows]), [a["N"], a["group"], 1]
    kept = {"axis": ints(2), "keepdims": flag(True)}
    mean = w.user(node, "reduce_sum", {"input_tensor": [x]}, "output_tensor", kept, group_shape)
    mean = w.user(node, "scalar_mul", {"in": [mean]}, "out", numbers(1.0 / rows), group_shape)
    settings = {
        "dim": ints(2),
        "unbiased": flag(False),
        "keepdim": flag(True),
        "dtype": ("at_data_type", data_type_number(w.dtype(a["input"]))),
    }
    var = w.user(node, "var", {"input": [x]}, "output", settings, group_shape)
    x = w.user(node, "broadcast_sub", {"x": [x], "y": [mean]}, "z", {}, w.size(x))
    var = w.user(node, "scalar_add", {"in": [var]}, "out", numbers(float(a["eps"])), group_shape)
    var = w.user(node, "sqrt", {"x": [var]}, "y", {}, group_shape)
    x = w.user(node, "broadcast_div", {"x": [x], "y": [var]}, "z", {}, w.size(x))
    if a["weight"] is not None or a["bias"] is not None:
        x = reshape(w, node, x, [a["N"], a["C"], a["HxW"]])
    for op_type, tensor in (("mul", a["weight"]), ("add", a["bias"])):
        if tensor is not None:
            y = reshape(w, node, tensor, [1, a["C"], 1])
            x = w.user(node, f"broadcast_{op_type}", {"x": [x], "y": [y]}, "z", {}, w.size(x))
    return reshape(w, node, x, shape)


LAYERS = {
    "_softmax": _softmax("softmax", "out"),
    "_log_softmax": _softmax("log_softmax", "prob"),
    "gelu": _gelu,
    "elu": _elu,
    "constant_pad_nd": _pad,
    "upsample_nearest1d": _upsample("upsample_nearest_1d", 1),
    "upsample_nearest2d": _upsample("upsample_nearest_2d", 2),
    "upsample_linear1d": _upsample("upsample_linear_1d", 1),
    "upsample_bilinear2d": _upsample("upsample_bilinear_2d", 2),
    "upsample_bicubic2d": _upsample("upsample_bicubic_2d", 2),
    "bmm": _product,
    "embedding": _embedding,
}
LAYER_PARTS = {
    "native_layer_norm": _layer_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "native_group_norm": _group_norm,
}
