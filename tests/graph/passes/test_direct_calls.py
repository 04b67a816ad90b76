"""A program calls operators through torch's Python API: the same overload, the same arguments, the same bits."""

import pytest
import torch
from graph_cases import graph_of
from torch.fx import Graph
from torch.utils._python_dispatch import TorchDispatchMode

from oneflow._graph.program.direct_calls import OWNERS, direct_call, with_spread_list

x, y, z = torch.randn(3, 4, 6).unbind()
positive, square = torch.rand(4, 6) + 0.5, torch.randn(6, 6)
stack, other_stack = torch.randn(2, 4, 6), torch.randn(2, 6, 3)
image, kernel = torch.randn(2, 3, 8, 8), torch.randn(5, 3, 3, 3)
heads = torch.randn(1, 2, 4, 8)
row, mask = torch.randn(6), torch.randn(4, 6) > 0
index = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 0]])
size_options = {"pin_memory": False, "memory_format": torch.preserve_format}
scalars = dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), (x, 0.25))
lstm = torch.nn.LSTM(6, 5)
layer = (torch.randn(3, 2, 6), lstm.weight_ih_l0.detach(), lstm.weight_hh_l0.detach())
states = (lstm.bias_ih_l0.detach(), lstm.bias_hh_l0.detach(), torch.randn(2, 5), torch.randn(2, 5))

CALLS = {  # overload: its arguments by position
    "view.default": (x, [2, 12]),
    "t.default": (x,),
    "transpose.int": (x, 0, -1),
    "permute.default": (stack, [2, 0, 1]),
    "expand.default": (row, [3, 6]),
    "unsqueeze.default": (x, 1),
    "squeeze.default": (x[:1],),
    "squeeze.dim": (x[:1], 0),
    "squeeze.dims": (x[:1], [0]),
    "select.int": (x, 1, 2),
    "split.Tensor": (x, 2, 1),
    "split_with_sizes.default": (x, [2, 4], 1),
    "unbind.int": (x, 1),
    "as_strided.default": (x, [3, 2], [2, 1], 1),
    "detach.default": (x,),
    "add_.Tensor": (x, y),
    "sub_.Tensor": (x, y),
    "mul_.Tensor": (x, 3.0),
    "div_.Tensor": (x, y),
    "copy_.default": (x, row),
    "fill_.Scalar": (x, 0.1),
    "fill_.Tensor": (x, torch.tensor(0.3)),
    "zero_.default": (x,),
    "relu_.default": (x,),
    "masked_fill_.Scalar": (x, mask, 2.0),
    "mm.default": (x, square),
    "addmm.default": (row, x, square),
    "bmm.default": (stack, other_stack),
    "baddbmm.default": (torch.randn(2, 4, 3), stack, other_stack),
    "pow.Tensor_Scalar": (positive, 1.7),
    "pow.Tensor_Tensor": (positive, y),
    "where.self": (mask, x, y),
    "clamp.default": (x, -0.5, 0.5),
    "clamp_min.default": (x, 0),
    "masked_fill.Scalar": (x, mask, float("-inf")),
    "addcmul.default": (x, y, z),
    "addcdiv.default": (x, y, positive),
    "lerp.Scalar": (x, y, 0.3),
    "sum.dim_IntList": (x, [0], True),
    "mean.dim": (x, [0, 1]),
    "amax.default": (x, [1], True),
    "argmax.default": (x, 1, False),
    "max.dim": (x, 1, True),
    "var_mean.correction": (x, [1]),
    "cumsum.default": (x, 1),
    "cat.default": ([x, y], 1),
    "full_like.default": (x, 0.5),
    "index_select.default": (x, 1, index[:, 0]),
    "gather.default": (x, 1, index),
    "embedding.default": (x, index, -1, False, False),
    "constant_pad_nd.default": (x, [0, 1], -1.0),
    "_log_softmax.default": (x, 1, False),
    "_softmax.default": (x, 1, False),
    "native_layer_norm.default": (x, [6], row, None, 1e-5),
    "native_batch_norm.default": (x, row, row, row.clone(), positive[0], True, 0.1, 1e-5),
    "native_dropout.default": (x, 0.5, True),
    "convolution.default": (image, kernel, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "mkldnn_rnn_layer.default": (*layer, *states, False, [], 2, 5, 1, True, False, False, True),
    "_scaled_dot_product_flash_attention_for_cpu.default": (heads, heads, heads, 0.0, True),
    "gelu.default": (x,),
    "leaky_relu.default": (x, 0.1),
    "hardtanh.default": (x, -0.5, 0.5),
    "max_pool2d_with_indices.default": (image, [2, 2], [2, 2]),
    "avg_pool2d.default": (image, [2, 2]),
    "_adaptive_avg_pool2d.default": (image, [1, 1]),
    **{f"{name}.Tensor": (x, y) for name in ("add", "sub", "mul", "div", *scalars)},
    **{f"{name}.Scalar": arguments for name, arguments in scalars.items()},
    **{f"{name}.default": (x, y) for name in ("maximum", "minimum", "logical_and")},
}
OPTIONS = {
    "add.Tensor": {"alpha": 0.3},
    "addmm.default": {"beta": 0.5, "alpha": 2},
    "addcmul.default": {"value": 0.3},
    "ones_like.default": size_options,
    "zeros_like.default": {
        "dtype": torch.float64,
        "layout": torch.strided,
        "device": torch.device("cpu"),
        "pin_memory": False,
    },
    "empty_like.default": size_options,
    "full_like.default": size_options,
    "clone.default": {"memory_format": torch.contiguous_format},
    "sum.default": {"dtype": torch.float64},
    "var_mean.correction": {"correction": 0, "keepdim": True},
    "gelu.default": {"approximate": "tanh"},
}
RANDOM = {"empty_like.default", "native_dropout.default", "mkldnn_rnn_layer.default"}  # or not initialized


class Record(TorchDispatchMode):
    """Note the operators that run, with their arguments."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.calls.append((function, repr(arguments), repr(options or {})))
        return function(*arguments, **(options or {}))


def overload(name):
    packet, suffix = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), suffix)


def node_of(name, arguments, options):
    return Graph().call_function(overload(name), arguments, options)


def recorded(function, arguments, options):
    """Return the operators that a call runs, its results, and its arguments afterwards."""
    arguments = [a.clone() if isinstance(a, torch.Tensor) and a.is_contiguous() else a for a in arguments]
    with Record() as record, torch._C._AutoDispatchBelowAutograd():
        result = function(*arguments, **options)
    return record.calls, torch.utils._pytree.tree_leaves((result, arguments))


@pytest.mark.parametrize("name", sorted(OWNERS))
def test_direct_call_runs_the_same_overload(name):
    arguments, options = CALLS.get(name, (positive,)), OPTIONS.get(name, {})
    node = node_of(name, arguments, options)
    expected_calls, expected = recorded(overload(name)._op, arguments, options)
    calls, values = recorded(direct_call(node), with_spread_list(node), options)
    assert calls == expected_calls and len(calls) == 1
    if name not in RANDOM:
        tensors = [(a, b) for a, b in zip(expected, values, strict=False) if isinstance(a, torch.Tensor)]
        assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in tensors)


def test_option_of_the_python_api_only_is_no_direct_call():
    """`out` would be a write that no pass knows. torch.ops refuses it."""
    node = node_of("mm.default", (x, square), {"out": y.clone()})
    assert direct_call(node) is None


def test_empty_list_of_sizes_stays_a_list():
    node = node_of("view.default", (torch.ones(1), []), {})
    assert with_spread_list(node) == node.args


def test_program_under_a_default_device():
    """torch.device() as a context manager changes functions of torch that make tensors."""
    graph = graph_of(lambda x: torch.relu(x).view(6, 4).sum() + torch.ones_like(x).mean())
    expected = graph(x)
    with torch.device("meta"):
        result = graph(x)
    assert torch.equal(result, expected) and result.device == x.device


def test_views_of_symbolic_sizes():
    graph = graph_of(lambda x: x.view(x.shape[0] // 2, -1).t().expand(2, -1, -1) * 2)
    for rows in (4, 6, 8):
        x = torch.randn(rows, 3)
        assert torch.equal(graph(x), x.view(rows // 2, -1).t().expand(2, -1, -1) * 2)
