"""OneFlow's names for ATen's operators in a graph's job message, as recorded from OneFlow 0.9.0
(`nn/graph/job_message/program.py`).

{ATen's name: (OneFlow's name, names of the tensor inputs in ATen's order, name of the output, {setting:
(kind, position of ATen's argument, or a constant)})}. Operators that need more than a row are in
`nn/graph/job_message/calls.py`. They have a row here too if `calls.py` cannot handle sizes that depend on
values. An operator without a row keeps ATen's name and argument names.
"""

from typing import Any

_POOL_1 = {
    "kernel_size": ("at_list_int32", 1),
    "stride": ("at_list_int32", 2),
    "padding": ("at_list_int32", 3),
    "data_format": ("at_string", "channels_first"),
}
_MAX_POOL = {
    **_POOL_1,
    "dilation": ("at_list_int32", 4),
    "ceil_mode": ("at_bool", 5),
    "return_indices": ("at_bool", False),
}
_AVG_POOL = {**_POOL_1, "ceil_mode": ("at_bool", 4), "count_include_pad": ("at_bool", 5)}
_SHAPE = {"shape": ("at_shape", 1)}

GRAPH_OPERATORS: dict[str, tuple[str, tuple[str, ...], str, dict[str, Any]]] = {
    **{
        n: (n, ("x",), "y", {})
        for n in (
            "relu",
            "sigmoid",
            "tanh",
            "exp",
            "sqrt",
            "rsqrt",
            "log",
            "abs",
            "erf",
            "sin",
            "cos",
            "floor",
            "ceil",
            "reciprocal",
            "sign",
            "round",
            "expm1",
            "log1p",
            "log2",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "asinh",
            "acosh",
            "atanh",
            "erfc",
            "lgamma",
            "logical_not",
        )
    },
    "neg": ("negative", ("x",), "y", {}),
    "log_sigmoid_forward": ("log_sigmoid", ("x",), "y", {}),
    "hardshrink": ("hardshrink", ("in",), "out", {"lambd": ("at_double", 1)}),
    "softshrink": ("softshrink", ("in",), "out", {"alpha": ("at_double", 1)}),
    "threshold": (
        "threshold",
        ("in",),
        "out",
        {"threshold_val": ("at_double", 1), "value": ("at_double", 2)},
    ),
    "celu": ("celu", ("in",), "out", {"alpha": ("at_double", 1)}),
    **{
        f"{mode}_pad{d}d": (f"{mode}_pad{d}d", ("x",), "y", {"padding": ("at_list_int64", 1)})
        for mode in ("reflection", "replication")
        for d in (1, 2)
    },
    "cumsum": ("cumsum", ("x",), "y", {"dim": ("at_int64", 1)}),
    "flip": ("flip", ("x",), "y", {"dims": ("at_list_int32", 1)}),
    "roll": ("roll", ("in",), "out", {"shifts": ("at_list_int32", 1), "dims": ("at_list_int32", 2)}),
    **{n: (n, ("in",), "out", {}) for n in ("gelu", "silu", "mish", "hardswish", "hardsigmoid", "softsign")},
    "_softmax": ("softmax", ("in",), "out", {}),
    "_log_softmax": ("log_softmax", ("in",), "prob", {}),
    "leaky_relu": ("leaky_relu", ("x",), "y", {"alpha": ("at_float", 1)}),
    "elu": ("elu", ("in",), "out", {"alpha": ("at_double", 1)}),
    "hardtanh": ("hardtanh", ("in",), "out", {"min_val": ("at_double", 1), "max_val": ("at_double", 2)}),
    "max_pool2d_with_indices": ("max_pool_2d", ("x",), "y", _MAX_POOL),
    "max_pool3d_with_indices": ("max_pool_3d", ("x",), "y", _MAX_POOL),
    "avg_pool2d": ("avg_pool_2d", ("x",), "y", _AVG_POOL),
    "avg_pool3d": ("avg_pool_3d", ("x",), "y", _AVG_POOL),
    "_adaptive_avg_pool2d": ("adaptive_avg_pool2d", ("x",), "y", {"output_size": ("at_list_int64", 1)}),
    "_adaptive_avg_pool3d": ("adaptive_avg_pool3d", ("x",), "y", {"output_size": ("at_list_int64", 1)}),
    "view": ("reshape", ("in",), "out", _SHAPE),
    "_unsafe_view": ("reshape", ("in",), "out", _SHAPE),
    "reshape": ("reshape", ("in",), "out", _SHAPE),
    "expand": ("expand", ("in",), "out", {"expand_shape": ("at_shape", 1)}),
    "permute": ("transpose", ("input",), "output", {"perm": ("at_list_int32", 1)}),
    "unsqueeze": ("expand_dims", ("in",), "out", {"axis": ("at_int32", 1)}),
    "cat": ("concat", ("in",), "out", {"axis": ("at_int64", 1)}),
    "bmm": ("batch_matmul", ("a", "b"), "out", {}),
    "embedding": ("gather", ("in", "indices"), "out", {}),
    "_prelu_kernel": ("prelu", ("x", "alpha"), "y", {}),
    "upsample_nearest2d": ("upsample_nearest_2d", ("x",), "y", {}),
    "where": ("where", ("condition", "x", "y"), "out", {}),
    "native_batch_norm": (
        "normalization",
        ("x", "gamma", "beta", "moving_mean", "moving_variance"),
        "y",
        {"training": ("at_bool", 5), "momentum": ("at_float", 6), "epsilon": ("at_float", 7)},
    ),
    "native_layer_norm": ("layer_norm", ("x", "gamma", "beta"), "y", {"epsilon": ("at_double", 4)}),
    "sum": (
        "reduce_sum",
        ("input_tensor",),
        "output_tensor",
        {"axis": ("at_list_int32", 1), "keepdims": ("at_bool", 2)},
    ),
    "_to_copy": ("cast", ("in",), "out", {}),
}

# tensor with tensor: broadcast_add with inputs x, y and output z; tensor with number: scalar_add with in, out
# and the operand
GRAPH_ARITHMETIC = ("add", "sub", "mul", "div", "pow")

# torch's dtype names and the numbers of OneFlow's DataType
DATA_TYPE_NUMBERS = {
    "float32": 2,
    "float64": 3,
    "int8": 4,
    "int32": 5,
    "int64": 6,
    "uint8": 7,
    "float16": 9,
    "bfloat16": 11,
    "bool": 12,
    "uint16": 13,
    "uint32": 14,
    "uint64": 15,
    "int16": 17,
    "complex32": 19,
    "complex64": 20,
    "complex128": 21,
}
