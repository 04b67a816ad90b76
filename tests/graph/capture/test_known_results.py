"""The hand-written symbolic results agree with the kernels: shape, dtype, strides."""

import copy
import itertools

import pytest
import torch
from graph_cases import graph_of
from torch._subclasses.fake_tensor import FakeTensorMode

from oneflow._graph.capture.results.frequent_results import known_results

aten = torch.ops.aten
last, last_3d = torch.channels_last, torch.channels_last_3d
INPUTS = {
    "2-d": torch.randn(4, 3),
    "3-d": torch.randn(4, 3, 5),
    "4-d": torch.randn(2, 3, 4, 5),
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=last),
    "5-d": torch.randn(2, 3, 4, 5, 2),
    "5-d channels last": torch.randn(2, 3, 4, 5, 2).to(memory_format=last_3d),
    "float64": torch.randn(2, 3, 4, 4, dtype=torch.float64),
    "transposed": torch.randn(3, 4).t(),
    "3-d transposed": torch.randn(2, 5, 3).transpose(1, 2),
    "neither": torch.randn(2, 4, 3, 5).transpose(1, 2),
    "a part": torch.randn(2, 6, 4, 5)[:, :3],
    "a part, channels last": torch.randn(2, 3, 8, 5).to(memory_format=last)[:, :, ::2],
}
LEFT = {
    "both formats": torch.randn(2, 3, 1, 1), "one channel": torch.randn(2, 1, 4, 4),
}  # fmt: skip


def arguments(x):
    channels = x.shape[1]
    return [
        x,
        torch.ones(channels, dtype=x.dtype),
        torch.zeros(channels, dtype=x.dtype),
        torch.zeros(channels, dtype=x.dtype),
        torch.ones(channels, dtype=x.dtype),
    ]


def symbolic(func, args):
    with FakeTensorMode() as mode:
        return known_results(
            func, [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args], {}
        )


def assert_same_layout(actual, real):
    assert len(actual) == len(real)
    for f, r in zip(actual, real):
        assert (f is None) == (r is None)
        assert f is None or (f.shape, f.dtype, f.stride(), f.device) == (
            r.shape,
            r.dtype,
            r.stride(),
            r.device,
        )


@pytest.mark.parametrize("x", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_as_the_kernel_gives_them(x, affine, training):
    x, weight, bias, mean, var = arguments(x)
    weight, bias = (weight, bias) if affine else (None, None)
    forward = (x, weight, bias, mean, var, training, 0.1, 1e-5)
    out = aten.native_batch_norm(*forward)
    assert_same_layout(symbolic(aten.native_batch_norm.default, forward), out)
    for needs_gradient in ([True, affine, affine], [False, affine, affine], [True, False, False]):
        backward = (torch.randn_like(x), x, weight, mean, var, out[1], out[2], training, 1e-5, needs_gradient)
        assert_same_layout(
            symbolic(aten.native_batch_norm_backward.default, backward),
            [r if w else None for r, w in zip(aten.native_batch_norm_backward(*backward), needs_gradient)],
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("x", [torch.randn(2, 3, 4, 4), torch.randn(1, 3, 2).transpose(1, 2)])
def test_half_types_as_the_kernel_gives_them(x, dtype):
    forward = (*arguments(x.to(dtype)), True, 0.1, 1e-5)
    assert_same_layout(symbolic(aten.native_batch_norm.default, forward), aten.native_batch_norm(*forward))


@pytest.mark.parametrize("x", LEFT.values(), ids=LEFT)
def test_the_rest_is_left_to_torch(x):
    assert symbolic(aten.native_batch_norm.default, (*arguments(x), True, 0.1, 1e-5)) is None


def test_misfits_are_left_to_torch():
    x = torch.randn(2, 3, 4, 4)
    assert (
        symbolic(aten.native_batch_norm.default, (x, *arguments(torch.randn(2, 4))[1:], True, 0.1, 1e-5))
        is None
    )
    assert symbolic(aten.exp.default, (x,)) is None


ELEMENTWISE = {
    aten.add.Tensor: 2,
    aten.mul.Tensor: 2,
    aten.div.Tensor: 2,
    aten.relu.default: 1,
    aten.gelu.default: 1,
    aten.gelu_backward.default: 2,
    aten.tanh_backward.default: 2,
    aten.silu_backward.default: 2,
    aten.sigmoid.default: 1,
    aten.hardtanh.default: 1,
    aten.neg.default: 1,
}
LAYOUTS = {
    **INPUTS,
    **LEFT,
    "0-d": torch.tensor(2.0),
    "empty": torch.zeros(0, 3),
    "no channels": torch.zeros(2, 0, 3, 3),
    "a row": torch.randn(1, 1, 1, 5),
}


@pytest.mark.parametrize("x", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("func", ELEMENTWISE, ids=str)
def test_elementwise_results_are_the_kernels(func, x):
    args = (x,) * ELEMENTWISE[func]
    actual = symbolic(func, args)
    if actual is not None:
        assert_same_layout([actual], [func(*args)])
    assert actual is not None or not (
        x.is_contiguous() or x.is_contiguous(memory_format=last if x.ndim == 4 else torch.contiguous_format)
    )


def test_threshold_and_operators_with_numbers_keep_eager_layouts():
    x = torch.randn(2, 3, 4, 4).to(memory_format=last)
    assert_same_layout(
        [symbolic(aten.threshold_backward.default, (x, x, 0))], [aten.threshold_backward(x, x, 0)]
    )
    assert_same_layout([symbolic(aten.mul.Tensor, (x, 2.5))], [x * 2.5])
    with FakeTensorMode() as mode:
        actual = known_results(aten.gelu.default, (mode.from_tensor(x),), {"approximate": "tanh"})
    assert_same_layout([actual], [aten.gelu(x, approximate="tanh")])


@pytest.mark.parametrize(
    "args",
    [
        (torch.ones(3, dtype=torch.int64), 2.5),
        (torch.ones(3), torch.ones(3, dtype=torch.float64)),
        (torch.ones(2, 3), torch.ones(3)),
        (torch.ones(3), 1j),
        (torch.ones(3, 3).t(), torch.ones(3, 3)),
        (torch.ones(1).expand(3), 2.0),
        (torch.ones(2, 3, 4, 5), torch.ones(2, 3, 4, 5).to(memory_format=last)),
    ],
)
def test_mixed_operands_are_left_to_torch(args):
    assert symbolic(aten.add.Tensor, args) is None


def test_an_in_place_operator_gives_its_tensor():
    with FakeTensorMode() as mode:
        x, turned, other, wide = (
            mode.from_tensor(t)
            for t in (torch.ones(3, 3), torch.ones(3, 3).t(), torch.ones(3), torch.ones(1, 3).expand(3, 3))
        )
        assert (
            known_results(aten.add_.Tensor, (x, turned), {"alpha": -0.1}) is x
            and known_results(aten.lerp_.Scalar, (turned, x, 0.5), {}) is turned
        )
        # an error of torch
        assert (
            known_results(aten.add_.Tensor, (x, other), {}) is None
            and known_results(aten.add_.Tensor, (wide, x), {}) is None
        )


CASES = {
    "linear": lambda x: torch.nn.functional.linear(x, torch.ones(5, x.shape[-1])),
    "softmax": lambda x: x.softmax(-1),
    "turned": lambda x: (x.transpose(0, 1) * 2).mean(0),
    "norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "conv": lambda x: torch.nn.functional.conv1d(x, torch.ones(2, x.shape[1], 3)),
    "two": lambda x: x.max(1),
    "parts": lambda x: x.split([1, x.shape[1] - 1], 1)[1],
    "numbers": lambda x: x.pow(2) + x.pow(2.0),
    "whole": lambda x: x.argmax(0) + (x > 0),
    "rows": lambda x: x.unbind(0)[1],
    "complex": lambda x: torch.fft.rfft(x).abs(),
    "list": lambda x: torch.cat([x, x[:1]]),
    "window": lambda x: x.as_strided((2, 2), (1, 2), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_the_second_time_as_the_first_and_as_eager(case):
    inputs = [
        torch.randn(3, 4, 6),
        torch.randn(3, 4, 6),
        torch.randn(3, 4, 6, dtype=torch.float64).float(),
        torch.randn(4, 3, 6).transpose(0, 1),
        torch.randn(3, 4, 12)[..., ::2],
    ]

    def build(*xs):
        return [CASES[case](x) for x in xs]

    actual, expected = graph_of(build)(*inputs), build(*inputs)
    for got, reference in zip(
        torch.utils._pytree.tree_leaves(actual), torch.utils._pytree.tree_leaves(expected), strict=True
    ):
        assert (
            torch.equal(got, reference)
            and got.dtype is reference.dtype
            and got.stride() == reference.stride()
        )


def test_numbers_of_other_types_are_other_calls():
    actual = graph_of(lambda x: [x * 2, x * 2.0, x * True, x * 2, x.sum(0), x / 2])(
        torch.ones(2, dtype=torch.int64)
    )
    assert [t.dtype for t in actual] == [
        torch.int64,
        torch.float32,
        torch.int64,
        torch.int64,
        torch.int64,
        torch.float32,
    ]


def test_results_that_depend_on_more_than_the_arguments_are_not_kept():
    calls = []
    with torch.library._scoped_library("of_results", "DEF") as library:
        library.define("taken(Tensor x) -> Tensor")
        library.impl("taken", lambda x: x.clone(), "CPU")
        torch.library.register_fake(
            "of_results::taken", lambda x: calls.append(1) or torch.empty_like(x), lib=library
        )
        graph_of(lambda x: torch.ops.of_results.taken(x) + torch.ops.of_results.taken(x))(torch.ones(2))
    assert len(calls) >= 2  # a fake kernel of the user's may look at anything

    seen = []

    def build(x):
        seen.append((x / 2).dtype)
        return x

    try:
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            graph_of(build)(torch.ones(2, dtype=torch.int64))
    finally:
        torch.set_default_dtype(torch.float32)
    assert seen == [torch.float32, torch.float64]


def test_lists_of_an_update():
    def build(x):
        y = [x * 1, x * 2]
        roots = torch._foreach_sqrt(y)
        torch._foreach_addcdiv_(y, roots, roots, -1.0)
        torch._foreach_mul_(y, [2.0, 3.0])
        return [*y, *roots, *torch._foreach_add(y, 1)]

    x = torch.rand(3)
    for got, expected in zip(graph_of(build)(x), build(x), strict=True):
        assert torch.equal(got, expected)
    with pytest.raises(RuntimeError):
        graph_of(lambda x: torch._foreach_mul_([x * 1], [x[:2]]))(x)


def test_a_view_of_the_result_for_a_transposed_input_equals_eager():
    norm, x = torch.nn.BatchNorm1d(6), torch.randn(4, 5, 6)
    eager = copy.deepcopy(norm)
    assert torch.equal(
        graph_of(lambda x: norm(x.transpose(1, 2)).transpose(1, 2).reshape(-1, 6), norm=norm)(x),
        eager(x.transpose(1, 2)).transpose(1, 2).reshape(-1, 6),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [16, 12, 10])
def test_grouped_products_have_eager_layouts(dtype, width):
    """Two or three dimensions on either side; experts' weights are the transposed one."""
    rows, inner = torch.tensor([2, 2, 8], dtype=torch.int32), torch.tensor([8, 8, 16], dtype=torch.int32)
    weight, x = torch.randn(3, width, 16, dtype=dtype).transpose(1, 2), torch.randn(8, 16, dtype=dtype)
    for a, b, offs in (
        (x, weight, rows),
        (torch.randn(16, 8, dtype=dtype).t(), torch.randn(16, 16, dtype=dtype), inner),
        (torch.randn(3, 8, 16, dtype=dtype), weight, None),
    ):
        assert_same_layout(
            [symbolic(aten._grouped_mm.default, (a, b, offs))], [aten._grouped_mm(a, b, offs=offs)]
        )


LAYOUTS = {
    "mse": lambda x, y: (aten.mse_loss_backward.default, (torch.ones(()), x, y, 1)),
    "smooth l1": lambda x, y: (aten.smooth_l1_loss_backward.default, (torch.ones(()), x, y, 1, 1.0)),
    "huber": lambda x, y: (aten.huber_loss_backward.default, (torch.ones(()), x, y, 1, 1.0)),
    "log softmax": lambda x, y: (aten._log_softmax_backward_data.default, (x, y, 1, x.dtype)),
    "log sigmoid": lambda x, y: (aten.log_sigmoid_forward.default, (x,)),
    "2 ** x": lambda x, y: (aten.pow.Scalar, (2, x)),
    "normal": lambda x, y: (aten.normal.Tensor_Tensor, (x, x.exp())),
    "copysign": lambda x, y: (aten.copysign.Tensor, (x, torch.tensor(-1.0))),
    "floor": lambda x, y: (aten.floor_divide.default, (x, torch.tensor(2.0))),
    "floor by a number": lambda x, y: (aten.floor_divide.default, (x, 3)),
    "floor of a number": lambda x, y: (aten.floor_divide.default, (3, x)),
    "dropout": lambda x, y: (aten.native_dropout_backward.default, (x, x > 0, 2.0)),
    "filled": lambda x, y: (aten.index_fill.int_Scalar, (x[..., :2], 1, torch.tensor([0]), 0.5)),
    "gate": lambda x, y: (aten.glu_backward.default, (x[..., :2].clone(), x[..., [0, 1, 0, 1]].clone(), -1)),
}


@pytest.mark.parametrize(
    "x",
    [torch.randn(2, 5, 3).transpose(1, 2), torch.randn(2, 4, 3, 5).to(memory_format=last), torch.randn(4, 5)],
    ids=["transposed", "channels last", "plain"],
)
@pytest.mark.parametrize("case", LAYOUTS.values(), ids=LAYOUTS)
def test_symbolic_results_have_eager_layouts(case, x):
    func, args = case(x, torch.rand(x.shape))
    actual, real = symbolic(func, args), func(*args)
    assert_same_layout(
        [actual] if isinstance(real, torch.Tensor) else actual,
        [real] if isinstance(real, torch.Tensor) else real,
    )


HALF = {
    "expanded sum": lambda x: (torch.ones((), dtype=x.dtype).expand_as(x), x),
    "a row": lambda x: (x[:1], x[..., :1]),
    "a number": lambda x: (x, 2.0),
    "wider": lambda x: (x, x.float()),
    "0-d": lambda x: (torch.tensor(2.0, dtype=x.dtype), x),
    "integers": lambda x: (x.long(), x),
}


@pytest.mark.parametrize(
    "func", [aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor], ids=str
)
@pytest.mark.parametrize("case", HALF.values(), ids=HALF)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_arithmetic_of_half_precision_has_eager_layouts(dtype, case, func):
    args = case(torch.ones(2, 5, 3, dtype=dtype).transpose(1, 2))
    assert_same_layout([symbolic(func, args)], [func(*args)])


def test_a_reshaped_gradient_of_half_precision():
    """Of a sum, times a transposed tensor: no view, which torch's symbolic form takes it for."""
    x, y = torch.randn(4, 5, 3, dtype=torch.bfloat16).transpose(1, 2), torch.ones((), dtype=torch.bfloat16)
    assert torch.equal(graph_of(lambda x, y: (y.expand_as(x) * x).reshape(-1))(x, y), x.reshape(-1))


def test_statistics_of_a_transposed_bfloat16_have_eager_layouts():
    x = torch.randn(5, 4, 3, dtype=torch.bfloat16).transpose(1, 2)
    args = (*arguments(x), True, 0.1, 1e-5)
    assert_same_layout(
        [symbolic(aten.native_batch_norm.default, args)[0]], [aten.native_batch_norm(*args)[0]]
    )


def test_operators_on_pixels_have_eager_layouts():
    x = torch.randn(2, 4, 3, 4).to(memory_format=last)
    y = torch.randn(2, 4, 3, 4, 2).to(memory_format=last_3d)
    for func, args in (
        (
            aten.reflection_pad2d_backward.default,
            (torch.randn(2, 4, 5, 6).to(memory_format=last), x, [1, 1, 1, 1]),
        ),
        *((getattr(aten, f"{kind}_pad3d").default, (y, [1] * 6)) for kind in ("reflection", "replication")),
        *(
            (
                getattr(aten, f"{kind}_pad3d_backward").default,
                (torch.randn(2, 4, 5, 6, 4).to(memory_format=last_3d), y, [1] * 6),
            )
            for kind in ("reflection", "replication")
        ),
        (
            aten.nll_loss2d_forward.default,
            (
                x,
                torch.zeros(2, 3, 4, dtype=torch.int64).transpose(1, 2).contiguous().transpose(1, 2),
                None,
                0,
                -100,
            ),
        ),
    ):
        actual, real = symbolic(func, args), func(*args)
        assert_same_layout(
            [actual] if isinstance(real, torch.Tensor) else actual,
            [real] if isinstance(real, torch.Tensor) else real,
        )
    for func, args in (
        (aten.channel_shuffle.default, (x, 2)),
        (
            aten.replication_pad2d_backward.default,
            (torch.randn(2, 4, 5, 6).to(memory_format=last), x, [1, 1, 1, 1]),
        ),
    ):
        assert_same_layout([symbolic(func, args)], [func(*args)])


def test_a_view_of_the_gradient_of_a_transposed_prediction():
    layer, x = torch.nn.Linear(3, 4), torch.randn(2, 5, 3)
    loss = torch.nn.functional.mse_loss(layer(x).transpose(1, 2), torch.zeros(2, 4, 5))
    loss.backward()
    expected, layer.weight.grad = layer.weight.grad, None

    def build(x):
        torch.nn.functional.mse_loss(layer(x).transpose(1, 2), torch.zeros(2, 4, 5)).backward()
        return layer.weight.grad

    assert torch.equal(graph_of(build, torch.optim.SGD(layer.parameters(), lr=0.1), layer=layer)(x), expected)


def test_a_number_before_the_tensor():
    x = torch.randn(3, 4)
    assert torch.equal(graph_of(lambda x: torch.add(0.5, x, alpha=2))(x), torch.add(0.5, x, alpha=2))
    functions = torch.floor_divide, torch.copysign, lambda a, b: torch.div(a, b, rounding_mode="trunc")
    for case in (
        lambda x: torch.floor_divide(7, x),
        *(lambda x, f=f, n=n: f(x.t(), n) for f in functions for n in (2, 2.5, torch.tensor(3))),
    ):
        actual, expected = graph_of(case)(x), case(x)
        assert torch.equal(actual, expected) and actual.stride() == expected.stride()
    assert graph_of(lambda x: x * torch.div(x.shape[0], 2, rounding_mode="trunc"))(x).equal(x)


def of_layouts(count):
    """Tensors of one shape, each in one of four layouts."""
    plain = [torch.rand(2, 3, 4) * 0.8 + 0.1 for _ in range(count)]
    kinds = (
        lambda t: t,
        lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
        lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
        lambda t: t[:, :1].expand(2, 3, 4),
    )
    return [[k(t) for k, t in zip(chosen, plain)] for chosen in itertools.product(kinds, repeat=count)]


OF_TWO = {
    aten.softplus_backward.default: (1.0, 20.0),
    aten.hardsigmoid_backward.default: (),
    aten.hardswish_backward.default: (),
    aten.hardtanh_backward.default: (0.2, 0.8),
    aten.logit_backward.default: (),
    aten.floor_divide.default: (),
    aten.special_xlog1py.default: (),
    aten.heaviside.default: (),
    aten.logaddexp.default: (),
    aten.logaddexp2.default: (),
    aten.logical_and.default: (),
    aten.logical_or.default: (),
    aten.logical_xor.default: (),
    aten.complex.default: (),
    aten.polar.default: (),
    aten.copysign.Tensor: (),
    aten.xlogy.Tensor: (),
    aten.threshold_backward.default: (0.5,),
    aten.leaky_relu_backward.default: (0.1, False),
    aten.binary_cross_entropy_backward.default: None,
    aten.soft_margin_loss_backward.default: None,
    aten.log_sigmoid_backward.default: None,
    aten.elu_backward.default: None,
}
OF_MORE = {
    aten.binary_cross_entropy_backward.default: lambda a, b, c: (a, b, c, None, 1),
    aten.soft_margin_loss_backward.default: lambda a, b, c: (a, b, c, 1),
    aten.log_sigmoid_backward.default: lambda a, b, c: (a, b, c),
    aten.elu_backward.default: lambda a, b, c: (a, 1.0, 1.0, 1.0, True, b),
}


@pytest.mark.parametrize("func", OF_TWO, ids=str)
def test_layouts_that_differ_between_operands(func):
    arguments_of, more = OF_MORE.get(func), OF_TWO[func]
    for tensors in of_layouts(2 if arguments_of is None else 3):
        args = arguments_of(*tensors) if arguments_of is not None else (*tensors, *more)
        assert_same_layout([symbolic(func, args)], [func(*args)])


def test_layer_norm_backward_of_a_transposed_input_has_eager_layouts():
    x, g = torch.randn(2, 5, 3).transpose(1, 2), torch.randn(2, 5, 3).transpose(1, 2)
    _, mean, rstd = aten.native_layer_norm(x, [5], torch.ones(5), torch.zeros(5), 1e-5)
    for needs_gradient in ([True, True, True], [True, False, False]):
        args = (g, x, [5], mean, rstd, torch.ones(5), torch.zeros(5), needs_gradient)
        assert_same_layout(
            symbolic(aten.native_layer_norm_backward.default, args),
            [t if w else None for t, w in zip(aten.native_layer_norm_backward(*args), needs_gradient)],
        )


def test_a_margin_loss_of_one_row_is_a_number():
    x, target = torch.randn(5), torch.tensor(1)
    for reduction in range(3):
        args = x, target, 1, 1.0, None, reduction
        assert_same_layout(
            [symbolic(aten.multi_margin_loss.default, args)], [aten.multi_margin_loss.default(*args)]
        )
