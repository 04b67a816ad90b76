"""The operators of a graph's job message equal those of OneFlow 0.9.0, and compute the same results as the
graph.
"""

import pytest
from job_messages import value

import oneflow as flow
import oneflow.nn as nn
import oneflow.nn.functional as F

X = flow.randn(2, 4, 8, 8)


class Calls(nn.Graph):
    def __init__(self, function):
        super().__init__()
        self.config.set_backend("aten")
        self.function = function

    def build(self, x):
        return self.function(x)


def job(function, x=X):
    graph = Calls(function.eval() if isinstance(function, nn.Module) else function)
    return graph, graph(x), graph._full_graph_proto


def said(function, x=X):
    """[(operator, {setting: value})]"""
    confs = [op.user_conf for op in job(function, x)[2].net.op if op.WhichOneof("op_type") == "user_conf"]
    return [
        (conf.op_type_name, {name: value(setting) for name, setting in conf.attr.items()}) for conf in confs
    ]


def window(start, stop, step=(1, 1, 1, 1)):
    return "slice", {"start": list(start), "stop": list(stop), "step": list(step)}


def number(n):
    whole = isinstance(n, int)
    return {
        "has_int_operand": whole,
        "has_float_operand": not whole,
        "int_operand": n if whole else 0,
        "float_operand": 0.0 if whole else n,
    }


SWAP = ("transpose", {"perm": [0, 3, 2, 1]})
FLOAT, INT64 = 2, 6
RECORDED = [  # from OneFlow 0.9.0
    (lambda x: x[:, 1:3], [window((0, 1, 0, 0), (2, 3, 8, 8))]),
    (lambda x: x[:, :, ::2], [window((0,) * 4, (2, 4, 8, 8), (1, 1, 2, 1))]),
    (lambda x: x[:, 1], [window((0, 1, 0, 0), (2, 2, 8, 8)), ("reshape", {"shape": [2, 8, 8]})]),
    (
        lambda x: flow.split(x, [1, 3], 1),
        [("narrow", {"dim": 1, "start": 0, "length": 1}), ("narrow", {"dim": 1, "start": 1, "length": 3})],
    ),
    (lambda x: x.view(2, -1), [("reshape", {"shape": [2, 256]})]),
    (
        lambda x: x.repeat(1, 2, 1, 1),
        [
            ("reshape", {"shape": [2, 1, 4, 8, 8]}),
            ("expand", {"expand_shape": [2, 2, 4, 8, 8]}),
            ("reshape", {"shape": [2, 8, 8, 8]}),
        ],
    ),
    (
        lambda x: x.repeat(2, 1, 1, 1, 1),
        [
            ("reshape", {"shape": [2, 4, 8, 8]}),
            ("expand", {"expand_shape": [2, 2, 4, 8, 8]}),
            ("reshape", {"shape": [2, 2, 4, 8, 8]}),
        ],
    ),
    (
        lambda x: x.transpose(0, 1).contiguous().unsqueeze(-1),
        [("transpose", {"perm": [1, 0, 2, 3]}), ("expand_dims", {"axis": 4})],
    ),
    (lambda x: F.softmax(x, 1), [SWAP, ("softmax", {}), SWAP]),
    (lambda x: F.log_softmax(x, -1), [("log_softmax", {})]),
    (
        lambda x: x.argmax(1, keepdim=True),
        [
            ("transpose", {"perm": [0, 2, 3, 1]}),
            ("argmax", {}),
            ("expand_dims", {"axis": 3}),
            ("transpose", {"perm": [0, 3, 1, 2]}),
        ],
    ),
    (lambda x: x.argmin(-1), [("negative", {}), ("argmax", {})]),
    (lambda x: x.argmax(), [("reshape", {"shape": [512]}), ("argmax", {})]),
    (lambda x: x.max(-1)[0], [("reduce_max", {"axis": [3], "keepdims": False})]),
    (lambda x: x.sum(), [("reduce_sum", {"axis": [0, 1, 2, 3], "keepdims": False})]),
    (lambda x: x.var(1), [("var", {"dim": [1], "unbiased": True, "keepdim": False, "dtype": FLOAT})]),
    (lambda x: x + x, [("add_n", {})]),
    (lambda x: flow.sub(x, x, alpha=2), [("scalar_mul", number(2)), ("broadcast_sub", {})]),
    (lambda x: x - 1.5, [("scalar_add", number(-1.5))]),
    (lambda x: 1 - x, [("scalar_mul", number(-1)), ("scalar_add", number(1))]),
    (lambda x: x // 2, [("scalar_floordiv", number(2))]),
    (lambda x: flow.maximum(x, x.abs()), [("abs", {}), ("elementwise_maximum", {})]),
    (
        lambda x: flow.clamp(x, -0.5, 0.5),
        [
            (
                "clip_by_scalar",
                {"floating_min": -0.5, "integral_min": 0, "floating_max": 0.5, "integral_max": 0},
            )
        ],
    ),
    (lambda x: flow.clamp(x, max=2.5), [("clip_by_scalar_max", {"floating_max": 2.5, "integral_max": 0})]),
    (lambda x: x <= 0.5, [("scalar_logical_less_equal", number(0.5))]),
    (lambda x: flow.ne(x, x.abs()), [("abs", {}), ("broadcast_not_equal", {})]),
    (
        lambda x: x.masked_fill(x > 0, 1),
        [
            ("scalar_logical_greater", number(0)),
            ("masked_fill", {"has_bool_operand": False, "bool_operand": False, **number(1.0)}),
        ],
    ),
    (lambda x: x.long(), [("cast", {"dtype": INT64, "pin_memory": False})]),
    (
        lambda x: F.pad(x, (1, 0, 2, 0), value=3),
        [
            (
                "pad",
                {
                    "padding": [1, 0, 2, 0],
                    "padding_before": [0, 0, 2, 1],
                    "padding_after": [0, 0, 0, 0],
                    "floating_constant_value": 3.0,
                    "integral_constant_value": 0,
                },
            )
        ],
    ),
    (
        lambda x: F.interpolate(x, size=(16, 12), mode="bilinear", align_corners=False),
        [
            (
                "upsample_bilinear_2d",
                {
                    "align_corners": False,
                    "data_format": "channels_first",
                    "output_size": [16, 12],
                    "height_scale": 2.0,
                    "width_scale": 1.5,
                },
            )
        ],
    ),
    (
        lambda x: F.interpolate(x, scale_factor=2),
        [
            (
                "upsample_nearest_2d",
                {"data_format": "channels_first", "output_size": [], "height_scale": 2.0, "width_scale": 2.0},
            )
        ],
    ),
    (lambda x: flow.triu(x, 1), [("triu", {"diagonal": 1})]),
    (lambda x: flow.cat([x, x], -3), [("concat", {"axis": 1, "max_dim_size": 8})]),
    (lambda x: x.sort()[0], [("arg_sort", {"direction": "ASCENDING"}), ("dim_gather", {"dim": 3})]),
    (
        nn.BatchNorm2d(4),
        [
            (
                "normalization",
                {
                    "axis": 1,
                    "epsilon": 9.999999747378752e-06,
                    "momentum": 0.8999999761581421,
                    "training": False,
                },
            )
        ],
    ),
    (
        nn.PixelShuffle(2),
        [
            ("reshape", {"shape": [2, 1, 4, 8, 8]}),
            ("reshape", {"shape": [2, 1, 2, 2, 8, 8]}),
            ("transpose", {"perm": [0, 1, 4, 2, 5, 3]}),
            ("reshape", {"shape": [2, 1, 16, 16]}),
        ],
    ),
    (nn.SELU(), [("selu", {})]),
    (nn.GELU(approximate="tanh"), [("fast_gelu", {})]),
]


@pytest.mark.parametrize("function, expected", RECORDED)
def test_operators_are_those_of_oneflow(function, expected):
    assert said(function) == expected


def test_tensors_made_in_a_graph():
    operators = said(lambda x: x * flow.full((8,), 3.0) + flow.arange(8))
    assert operators[0] == (
        "constant",
        {"is_floating_value": True, "floating_value": 3.0, "integer_value": 0, "dtype": FLOAT, "shape": [8]},
    )
    settings = dict(operators)["arange"]
    assert [settings[f"integer_{part}"] for part in ("start", "limit", "delta")] == [0, 8, 1] and settings[
        "dtype"
    ] == INT64


def test_batch_norm_in_oneflows_order_of_inputs():
    conf = next(op.user_conf for op in job(nn.BatchNorm2d(4))[2].net.op if op.HasField("user_conf"))
    assert list(conf.input_order) == ["x", "moving_mean", "moving_variance", "gamma", "beta"]


def scalar(settings):
    return settings["int_operand"] if settings["has_int_operand"] else settings["float_operand"]


def padded(x, s):
    sides = [n for pair in zip(s["padding_before"][::-1], s["padding_after"][::-1]) for n in pair]
    return F.pad(x, sides, value=s["floating_constant_value"])


# what OneFlow's operators do with their inputs, in the order of their input names, and their settings
MEANING = {
    "transpose": lambda s, x: x.permute(s["perm"]),
    "reshape": lambda s, x: x.reshape(s["shape"]),
    "expand": lambda s, x: x.expand(s["expand_shape"]),
    "expand_dims": lambda s, x: x.unsqueeze(s["axis"]),
    "squeeze": lambda s, x: x.squeeze(tuple(s["axes"])),
    "concat": lambda s, *x: flow.cat(x, s["axis"]),
    "slice": lambda s, x: x[tuple(map(slice, s["start"], s["stop"], s["step"]))],
    "narrow": lambda s, x: x.narrow(s["dim"], s["start"], s["length"]),
    "softmax": lambda s, x: F.softmax(x, -1),
    "log_softmax": lambda s, x: F.log_softmax(x, -1),
    "argmax": lambda s, x: x.argmax(-1),
    "reduce_sum": lambda s, x: x.sum(s["axis"], s["keepdims"]),
    "reduce_max": lambda s, x: x.amax(s["axis"], s["keepdims"]),
    "reduce_min": lambda s, x: x.amin(s["axis"], s["keepdims"]),
    "var": lambda s, x: flow.var(x, s["dim"], unbiased=s["unbiased"], keepdim=s["keepdim"]),
    "negative": lambda s, x: -x,
    "sqrt": lambda s, x: x.sqrt(),
    "relu": lambda s, x: x.relu(),
    "gelu": lambda s, x: F.gelu(x),
    "abs": lambda s, x: x.abs(),
    "add_n": lambda s, *x: sum(x[1:], x[0]),
    "broadcast_add": lambda s, x, y: x + y,
    "broadcast_sub": lambda s, x, y: x - y,
    "broadcast_mul": lambda s, x, y: x * y,
    "broadcast_div": lambda s, x, y: x / y,
    "elementwise_maximum": lambda s, x, y: flow.maximum(x, y),
    "scalar_add": lambda s, x: x + scalar(s),
    "scalar_mul": lambda s, x: x * scalar(s),
    "scalar_logical_greater": lambda s, x: x > scalar(s),
    "masked_fill": lambda s, x, mask: x.masked_fill(mask, scalar(s)),
    "pad": lambda s, x: padded(x, s),
    "clip_by_scalar": lambda s, x: x.clamp(s["floating_min"], s["floating_max"]),
    "matmul": lambda s, a, b: (a.t() if s["transpose_a"] else a) @ (b.t() if s["transpose_b"] else b),
    "batch_matmul": lambda s, a, b: a @ b,
    "dim_gather": lambda s, x, index: x.gather(s["dim"], index),
    "top_k": lambda s, x: x.topk(s["k"])[1],
    "arg_sort": lambda s, x: x.argsort(descending=s["direction"] == "DESCENDING"),
    "layer_norm": lambda s, x, *more: F.layer_norm(
        x, x.shape[s["begin_norm_axis"] :], *more, eps=s["epsilon"]
    ),
    "normalization": lambda s, x, mean, var, *more: F.batch_norm(x, mean, var, *more, False, 0, s["epsilon"]),
}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).reshape(2, 5, 3, 4, 4).permute(2, 0, 3, 1, 4)
        weights = F.softmax(
            (q @ k.transpose(-2, -1) * 0.5).masked_fill(flow.ones(5, 5).triu(1).bool(), -1e4), -1
        )
        return x + F.gelu(self.out((weights @ v).transpose(1, 2).reshape(2, 5, 16)))


COMPUTED = [f for f, _ in RECORDED if not isinstance(f, nn.Module)][:18] + [
    lambda x: x.min(1),
    lambda x: x.amin((1, 2)),
    lambda x: x.topk(3),
    lambda x: flow.unbind(x, 1)[2],
    lambda x: flow.chunk(x, 3, -1)[2],
    lambda x: x.squeeze(),
    lambda x: F.pad(x, (1, 2, 3, 0), value=2.0),
    lambda x: x.mean((2, 3)),
    lambda x: F.softmax(x, 0),
    lambda x: x.sort(descending=True),
    lambda x: flow.stack([x, -x]).sum(0),
    lambda x: x.argmin(2),
    lambda x: x.expand(3, -1, -1, -1, -1),
    nn.GroupNorm(2, 4),
    nn.GroupNorm(2, 4, affine=False),
    nn.LayerNorm([8, 8]),
    nn.BatchNorm2d(4),
    nn.PixelShuffle(2),
]


@pytest.mark.parametrize("function, x", [*((f, X) for f in COMPUTED), (Attention(), flow.randn(2, 5, 16))])
def test_the_operators_compute_what_the_graph_computes(function, x):
    if isinstance(function, nn.Module):
        for tensor in function.state_dict().values():
            tensor.copy_(flow.rand(tensor.shape) + 0.5)
    graph, results, message = job(function, x)
    values, sizes = {}, message.helper.lbn2logical_blob_desc
    state = function.state_dict() if isinstance(function, nn.Module) else {}
    for op in message.net.op:
        kind = op.WhichOneof("op_type")
        if kind == "input_conf":
            values[f"{op.name}/out"] = x
        elif kind == "variable_conf":
            values[f"{op.name}/out"] = state[op.name.removeprefix("function.")]
        elif kind == "user_conf":
            conf = op.user_conf
            settings = {name: value(setting) for name, setting in conf.attr.items()}
            meaning = (
                MEANING.get(conf.op_type_name)
                or {
                    "constant": lambda s: flow.full(s["shape"], s["floating_value"]),
                    "triu": lambda s, x: x.triu(s["diagonal"]),
                    "cast": lambda s, x: x.bool(),
                    "stack": lambda s, *x: flow.stack(x, s["axis"]),
                }[conf.op_type_name]
            )
            out = meaning(settings, *(values[name] for key in conf.input_order for name in conf.input[key].s))
            [name] = [name for key in conf.output_order for name in conf.output[key].s]
            values[name] = out
            assert tuple(sizes[name].shape.dim) == tuple(out.shape), (
                f"{conf.op_type_name}: the size of its value"
            )
        else:
            values[op.name] = values[getattr(op.output_conf, "in")]
    expected = [results] if isinstance(results, flow.Tensor) else list(results)
    got = [values[op.name] for op in message.net.op if op.HasField("output_conf")]
    assert len(got) == len(expected) and all(flow.allclose(a, b, atol=1e-6) for a, b in zip(got, expected))


def test_what_converters_ask_beside_the_operators():
    internal = flow._oneflow_internal
    assert (
        internal.UniqueStr("x") != internal.UniqueStr("x")
        and internal.deprecated.GetProtoDtype4OfDtype(flow.int64) == INT64
    )
    assert job(nn.GELU())[0]._is_global_view is False
    placed = Calls(nn.Linear(2, 2).to_global(placement=flow.placement("cpu", [0]), sbp=flow.sbp.broadcast))
    assert placed._is_global_view is True
