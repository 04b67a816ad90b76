"""ATen operators that OneFlow's job writes differently: with settings of its own, or as several operators.
Recorded from OneFlow 0.9.0.

CALLS is {ATen's name: function(writer, node, ATen's arguments by name) -> name of the value}. PARTS is the
same for one result of an operator with several results, with the position of the result. A function returns
None for a case it does not cover; the operator then keeps ATen's name. Sizes are those of the program; an
operator without sizes keeps ATen's name too.
"""

from __future__ import annotations

import math

import torch

from .graph_views import (
    VIEW_PARTS,
    VIEWS,
    dims,
    flag,
    ints,
    longs,
    numbers,
    reshape,
    swapped,
    transpose,
    typed,
)

_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "lt": "less",
    "le": "less_equal",
}
_LOGIC = ("logical_and", "logical_or", "logical_xor")


def _softmax(op_type, output):
    def call(w, node, a):
        return swapped(
            w, node, a["self"], a["dim"], lambda x: w.user(node, op_type, {"in": [x]}, output, {}, w.size(x))
        )

    return call


def _reduced(op_type):
    def call(w, node, a):
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


def _arg(negated):
    """Write argmax of the last dimension. Another dimension is moved there first, and the smallest element is
    the largest of -x.
    """

    def call(w, node, a, part=None):
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
            return (
                w.user(
                    node,
                    "expand_dims",
                    {"in": [out]},
                    "out",
                    {"axis": ("at_int32", rank - 1)},
                    [*shape, 1],
                    torch.int64,
                )
                if keep
                else out
            )
        x = transpose(w, node, x, [*range(dim), *range(dim + 1, rank), dim])
        shape = w.size(x)[:-1]
        out = w.user(node, "argmax", {"in": [x]}, "out", {}, shape, torch.int64)
        out = w.user(
            node,
            "expand_dims",
            {"in": [out]},
            "out",
            {"axis": ("at_int32", rank - 1)},
            [*shape, 1],
            torch.int64,
        )
        out = transpose(w, node, out, [*range(dim), rank - 1, *range(dim, rank - 1)])
        return out if keep else w.user(node, "squeeze", {"in": [out]}, "out", {"axes": ints(dim)})

    return call


def _largest(op_type, negated):
    def part(w, node, a, index):
        return _arg(negated)(w, node, a) if index else _reduced(op_type)(w, node, a)

    return part


def _compare(op_type):
    def call(w, node, a):
        operand = a["other"]
        if isinstance(operand, torch.fx.Node):
            return w.user(
                node, f"broadcast_{_COMPARISONS[op_type]}", {"x": [a["self"]], "y": [operand]}, "z", {}
            )
        return w.user(
            node, f"scalar_logical_{_COMPARISONS[op_type]}", {"in": [a["self"]]}, "out", numbers(operand)
        )

    return call


def _both(same, broadcast):
    """Return a writer that uses one operator name for tensors of equal size and another name otherwise."""

    def call(w, node, a):
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


def _with_number(name, both):
    def call(w, node, a):
        if isinstance(a["other"], torch.fx.Node):
            return both(w, node, a)
        return w.user(node, name, {"in": [a["self"]]}, "out", numbers(a["other"]))

    return call


def _add(w, node, a):
    """Write add_n for tensors of equal size. A factor of the second tensor becomes a separate product."""
    x, y, alpha = a["self"], a["other"], a["alpha"]
    if not isinstance(y, torch.fx.Node):
        return w.scalar(node, "add", x, y * alpha)
    if alpha != 1:
        y = w.user(node, "scalar_mul", {"in": [y]}, "out", numbers(alpha), w.size(y))
    if w.size(x) == w.size(y):
        return w.user(node, "add_n", {"in": [x, y]}, "out", {})
    return w.user(node, "broadcast_add", {"x": [x], "y": [y]}, "z", {})


def _sub(w, node, a):
    x, y, alpha = a["self"], a["other"], a["alpha"]
    if not isinstance(y, torch.fx.Node):
        return w.scalar(node, "add", x, -y * alpha)
    if alpha != 1:
        y = w.user(node, "scalar_mul", {"in": [y]}, "out", numbers(alpha), w.size(y))
    return w.user(node, "broadcast_sub", {"x": [x], "y": [y]}, "z", {})


def _rsub(w, node, a):
    if isinstance(a["other"], torch.fx.Node) or a["alpha"] != 1:
        return None
    return w.scalar(node, "add", w.scalar(node, "mul", a["self"], -1), a["other"])


def _clamp(w, node, a):
    low, high = a.get("min"), a.get("max")
    if any(isinstance(v, torch.fx.Node) for v in (low, high)) or (low is None and high is None):
        return None
    settings, op_type = {}, "clip_by_scalar" + ("_max" if low is None else "_min" if high is None else "")
    for name, value in (("min", low), ("max", high)):
        if value is not None:
            settings |= typed(
                w.dtype(a["self"]).is_floating_point, value, (f"floating_{name}", f"integral_{name}")
            )
    return w.user(node, op_type, {"x": [a["self"]]}, "y", settings)


def _masked_fill(w, node, a):
    if isinstance(a["value"], torch.fx.Node):
        return None
    settings = {
        "has_bool_operand": flag(False),
        "bool_operand": flag(False),
        **numbers(a["value"] * 1.0 if w.dtype(a["self"]).is_floating_point else a["value"]),
    }
    return w.user(node, "masked_fill", {"x": [a["self"]], "mask": [a["mask"]]}, "out", settings)


def _cast(w, node, a):
    return w.user(
        node,
        "cast",
        {"in": [a["self"]]},
        "out",
        {"dtype": ("at_data_type", w.data_type_number(w.dtype(node))), "pin_memory": flag(False)},
    )


def _pad(w, node, a):
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


def _constant(value):
    """Write a tensor filled with one value; `value` is that value or the name of ATen's argument."""

    def call(w, node, a):
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
                "dtype": ("at_data_type", w.data_type_number(dtype)),
                "shape": ("at_shape", w.result(node)),
            },
        )

    return call


def _arange(w, node, a):
    start, limit, delta = a.get("start", 0), a["end"], a.get("step", 1)
    if not all(isinstance(v, (int, float)) for v in (start, limit, delta)):
        return None
    floating = w.dtype(node).is_floating_point
    settings = {"dtype": ("at_data_type", w.data_type_number(w.dtype(node)))}
    for name, value in (("start", start), ("limit", limit), ("delta", delta)):
        settings |= typed(floating, value, (f"float_{name}", f"integer_{name}"))
    return w.user(node, "arange", {}, "out", settings)


def _var(w, node, a):
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
            "dtype": ("at_data_type", w.data_type_number(w.dtype(node))),
        },
    )


def _layer_norm(w, node, a, index):
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


def _batch_norm(w, node, a, index):
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


def _upsample(op_type, dims):
    """Write an upsampling. OneFlow keeps the given scales, or those that follow from the sizes."""

    def call(w, node, a):
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


def _product(w, node, a):
    settings = {"transpose_a": flag(False), "transpose_b": flag(False), "alpha": ("at_double", 1.0)}
    return w.user(node, "batch_matmul", {"a": [a["self"]], "b": [a["mat2"]]}, "out", settings)


def _concat(op_type):
    def call(w, node, a):
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


def _gathered(op_type, names, output, dim):
    def call(w, node, a):
        setting = {} if dim is None else {dim[0]: (dim[1], dims(w, a["self"], a["dim"])[0])}
        return w.user(node, op_type, {ours: [a[theirs]] for ours, theirs in names.items()}, output, setting)

    return call


def _embedding(w, node, a):
    return w.user(
        node, "gather", {"in": [a["weight"]], "indices": [a["indices"]]}, "out", {"axis": ("at_int64", 0)}
    )


def _group_norm(w, node, a, index):
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
        "dtype": ("at_data_type", w.data_type_number(w.dtype(a["input"]))),
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


def _sort(w, node, a, index):
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


def _triangle(op_type, settings):
    def call(w, node, a):
        return w.user(
            node, op_type, {"in": [a["self"]]}, "out", {"diagonal": ("at_int64", a["diagonal"]), **settings}
        )

    return call


def _topk(w, node, a, index):
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


def _elu(w, node, a):
    if a["scale"] != 1:
        return w.user(node, "selu", {"in": [a["self"]]}, "out", {})
    return w.user(node, "elu", {"in": [a["self"]]}, "out", {"alpha": ("at_double", float(a["alpha"]))})


def _gelu(w, node, a):
    return w.user(node, "fast_gelu" if a["approximate"] == "tanh" else "gelu", {"in": [a["self"]]}, "out", {})


_FILL = {
    "is_floating_fill_value": flag(False),
    "floating_fill_value": ("at_double", 0.0),
    "integer_fill_value": ("at_int64", 0),
}
_FMOD = _both("broadcast_fmod", "broadcast_fmod")
CALLS = {
    "_softmax": _softmax("softmax", "out"),
    "_log_softmax": _softmax("log_softmax", "prob"),
    "gelu": _gelu,
    "elu": _elu,
    "sum": _reduced("reduce_sum"),
    "amax": _reduced("reduce_max"),
    "amin": _reduced("reduce_min"),
    "prod": _reduced("reduce_prod"),
    "max": _reduced("reduce_max"),
    "min": _reduced("reduce_min"),
    "argmax": _arg(False),
    "argmin": _arg(True),
    "var": _var,
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
    "constant_pad_nd": _pad,
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
    "upsample_nearest1d": _upsample("upsample_nearest_1d", 1),
    "upsample_nearest2d": _upsample("upsample_nearest_2d", 2),
    "upsample_linear1d": _upsample("upsample_linear_1d", 1),
    "upsample_bilinear2d": _upsample("upsample_bilinear_2d", 2),
    "upsample_bicubic2d": _upsample("upsample_bicubic_2d", 2),
    "bmm": _product,
    "cat": _concat("concat"),
    "stack": _concat("stack"),
    "gather": _gathered("dim_gather", {"input": "self", "index": "index"}, "output", ("dim", "at_int32")),
    "index_select": _gathered("gather", {"in": "self", "indices": "index"}, "out", ("axis", "at_int64")),
    "embedding": _embedding,
    "tril": _triangle("tril", _FILL),
    "triu": _triangle("triu", {}),
}
PARTS = {
    **VIEW_PARTS,
    "max": _largest("reduce_max", False),
    "min": _largest("reduce_min", True),
    "native_layer_norm": _layer_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "topk": _topk,
    "native_group_norm": _group_norm,
    "sort": _sort,
}
