"""Top-level functions: arguments that only OneFlow accepts, both libraries' argument names, and unchanged
torch calls.
"""

import inspect

import numpy as np
import pytest
import torch
from function_cases import T, m, t

import oneflow as flow
from oneflow._bind import function_rows, rename_rows


def assert_equal(got, want, rtol=0.0):
    if isinstance(want, (tuple, list)) and not isinstance(got, torch.Tensor):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert_equal(g, w, rtol)
    else:
        assert got.dtype is want.dtype and got.shape == want.shape, (got, want)
        assert torch.equal(got, want) or torch.allclose(got, want, rtol=rtol, atol=0, equal_nan=True), (
            got,
            want,
        )


# got by OneFlow's call, the same value by torch
CASES = {
    # math
    "add list": (lambda: flow.add([t(), t(), t()]), lambda: t() * 3),
    "add inputs": (lambda: flow.add(inputs=(t(), t())), lambda: t() * 2),
    "add alpha": (lambda: flow.add(t(), t(), alpha=2), lambda: t() * 3),
    "pow scalar first": (lambda: flow.pow(2, t()), lambda: torch.pow(2, t())),
    "eq scalar first": (lambda: flow.eq(2, t()), lambda: T([False, True, False])),
    "lt scalar first": (lambda: flow.lt(1, t()), lambda: T([False, True, False])),
    "greater_equal scalar first": (lambda: flow.greater_equal(1.0, t()), lambda: T([True, False, True])),
    "ne torch": (lambda: flow.ne(input=t(), other=2), lambda: torch.ne(t(), 2)),
    "logical_and scalar": (lambda: flow.logical_and(t(), 0), lambda: T([False] * 3)),
    "logical_or scalar first": (lambda: flow.logical_or(True, T([0, 1])), lambda: T([True, True])),
    "bitwise float": (lambda: flow.bitwise_and(t(), T([1, 0, 1])), lambda: T([True, False, True])),
    "bitwise int": (lambda: flow.bitwise_and(T([6]), T([3])), lambda: T([2])),
    "logaddexp int": (lambda: flow.logaddexp(T([1]), T([1])), lambda: torch.logaddexp(T([1.0]), T([1.0]))),
    "logaddexp names": (lambda: flow.logaddexp(x=t(), y=t()), lambda: torch.logaddexp(t(), t())),
    "neg bool": (lambda: flow.neg(T([True, False])), lambda: T([-1.0, -0.0])),
    "relu bool": (lambda: flow.relu(T([True, False])), lambda: T([True, False])),
    "relu keyword": (lambda: flow.relu(input=t()), lambda: torch.relu(t())),
    "isclose": (lambda: flow.isclose(T([1000.0]), T([1000.5]), 1e-2, 0.0), lambda: T([False])),
    "isclose rtol": (lambda: flow.isclose(T([1000.0]), T([1000.5]), rtol=1e-2), lambda: T([True])),
    # reductions
    "argmax dtype": (lambda: flow.argmax(m(), 1, True, flow.int32), lambda: T([[2], [2]], dtype=torch.int32)),
    "argmax bool": (lambda: flow.argmax(T([False, True])), lambda: T(1)),
    "argmin torch": (lambda: flow.argmin(input=m(), dim=0, keepdim=True), lambda: torch.argmin(m(), 0, True)),
    "median keepdim": (lambda: flow.median(m(), keepdim=True), lambda: tuple(torch.median(m(), -1, True))),
    "median": (lambda: flow.median(m()), lambda: T(2.0)),
    "max True": (lambda: flow.max(m(), True), lambda: tuple(torch.max(m(), 1))),
    "max dim": (lambda: flow.max(m(), dim=0, keepdim=True), lambda: tuple(torch.max(m(), 0, True))),
    "max pair": (lambda: flow.max(t(), -t()), lambda: torch.max(t(), -t())),
    "pad value of another mode": (
        lambda: flow.pad(m()[None], (1, 1), "reflect", 1.5),
        lambda: torch.nn.functional.pad(m()[None], (1, 1), "reflect"),
    ),
    "prod list": (lambda: flow.prod(m() + 1, [0, 1], True), lambda: T([[720.0]])),
    "prod empty list": (lambda: flow.prod(m() + 1, []), lambda: T(720.0)),
    "prod torch": (lambda: flow.prod(T([2, 3]), dtype=torch.float64), lambda: T(6.0, dtype=torch.float64)),
    "std int": (lambda: flow.std(T([1, 2, -3])), lambda: T(2)),
    "std positional": (
        lambda: flow.std(m(), 0, False, True),
        lambda: torch.std(m(), 0, correction=0, keepdim=True),
    ),
    "std torch": (lambda: flow.std(t(), False), lambda: torch.std(t(), False)),
    "var unbiased=0": (lambda: flow.var(m(), 1, 0), lambda: torch.var(m(), 1, correction=0)),
    "std unbiased=0 of a tensor": (lambda: m().std(1, 0), lambda: torch.std(m(), 1, correction=0)),
    "std unbiased=1": (lambda: flow.std(m(), [1], 1, True), lambda: torch.std(m(), 1, keepdim=True)),
    "var correction": (
        lambda: flow.var(m(), dim=(0, 1), correction=0),
        lambda: torch.var(m(), (0, 1), correction=0),
    ),
    "norm matrix 1": (lambda: flow.norm(m(), 1), lambda: T(7.0)),
    "norm matrix inf": (
        lambda: flow.norm(m(), p=float("inf"), dim=(0, 1), keepdim=True),
        lambda: T([[12.0]]),
    ),
    "norm vector": (lambda: flow.norm(t(), 1), lambda: T(6.0)),
    "norm fro": (lambda: flow.norm(m()), lambda: torch.norm(m())),
    "norm dtype": (
        lambda: flow.norm(m(), 1, 0, False, torch.float64),
        lambda: T([3.0, 5.0, 7.0], dtype=torch.float64),
    ),
    "quantile": (
        lambda: flow.quantile(m(), 0.5, 1, True, "lower"),
        lambda: torch.quantile(m(), 0.5, 1, True, interpolation="lower"),
    ),
    "quantile nan": (lambda: flow.quantile(T([1.0, float("nan")]), 0.5, ignore_nan=True), lambda: T(1.0)),
    "topk dim None": (lambda: flow.topk(m(), 2, None), lambda: tuple(torch.topk(m(), 2))),
    "topk bool": (lambda: flow.topk(T([False, True]), 1), lambda: (T([True]), T([1]))),
    "sort stable": (lambda: flow.sort(torch.zeros(40))[1], lambda: torch.arange(40)),
    "sort descending stable": (
        lambda: flow.sort(torch.zeros(40), descending=True)[1],
        lambda: torch.arange(40),
    ),
    "argsort": (lambda: flow.argsort(torch.zeros(40), -1, True), lambda: torch.arange(40)),
    "unique dtype": (
        lambda: flow.unique(T([2, 1, 2]), True, True, True, torch.int32),
        lambda: (T([1, 2]), T([1, 0, 1], dtype=torch.int32), T([1, 2], dtype=torch.int32)),
    ),
    "unique by appearance": (
        lambda: flow.unique(T([[3, 1, 2], [2, 3, 5]]), False, True, True),
        lambda: (T([3, 1, 2, 5]), T([[0, 1, 2], [2, 0, 3]]), T([2, 1, 2, 1])),
    ),
    "unique of nothing": (lambda: flow.unique(flow.empty(0, 2), False), lambda: flow.empty(0)),
    "unique dim": (lambda: flow.unique(T([[1, 1], [1, 1]]), True, False, False, 0), lambda: T([[1, 1]])),
    "bincount bool": (lambda: flow.bincount(T([True, False, True])), lambda: T([1, 2])),
    "cumsum dtype": (lambda: flow.cumsum(T([1, 2]), 0, torch.float32), lambda: T([1.0, 3.0])),
    "bernoulli dtype": (
        lambda: flow.bernoulli(torch.ones(2), dtype=torch.float64),
        lambda: torch.ones(2, dtype=torch.float64),
    ),
    "in_top_k": (
        lambda: flow.in_top_k(
            T([1, 0, 9, -1]), T([[2.0, 2, 2, 3], [3, 3, 1, 0], [1, 2, 3, 4], [1, 2, 3, 4]]), 2
        ),
        lambda: T([True, True, False, False]),
    ),
    "in_top_k nan": (
        lambda: flow.in_top_k(T([1, 0]), T([[2.0, float("inf")], [float("nan"), 1]]), 2),
        lambda: T([False, False]),
    ),
    "roc_auc_score": (
        lambda: flow.roc_auc_score(T([[0], [0], [1], [1]]), T([[0.1], [0.4], [0.4], [0.8]])),
        lambda: T([0.875]),
    ),
    "roc_auc_score negative": (
        lambda: flow.roc_auc_score(T([0, 1, 0, 1]), T([-0.2, -0.1, 0.1, 0.3])),
        lambda: T([0.75]),
    ),
    # indexing
    "where int": (lambda: flow.where(T([1, 0, 2]), t(), 0.0), lambda: T([1.0, 0.0, -3.0])),
    "where names": (lambda: flow.where(condition=t() > 1, x=t(), y=-t()), lambda: T([-1.0, 2.0, 3.0])),
    "where torch names": (lambda: flow.where(t() > 1, input=t(), other=-t()), lambda: T([-1.0, 2.0, 3.0])),
    "where alone": (lambda: flow.where(t() > 1), lambda: (T([1]),)),
    "masked_fill int": (lambda: flow.masked_fill(t(), T([1, 0, 5]), 9), lambda: T([9.0, 2.0, 9.0])),
    "masked_select float": (lambda: flow.masked_select(t(), T([1.0, 0, 0])), lambda: T([1.0])),
    "argwhere dtype": (lambda: flow.argwhere(t() > 1, flow.int32), lambda: T([[1]], dtype=torch.int32)),
    "nonzero tuple": (lambda: flow.nonzero(t() > 1, True), lambda: (T([1]),)),
    "nonzero": (lambda: flow.nonzero(t() > 1), lambda: T([[1]])),
    "searchsorted": (
        lambda: flow.searchsorted(T([1.0, 2.0]), values=T([2.0]), right=True, out_int32=True),
        lambda: T([2], dtype=torch.int32),
    ),
    "searchsorted positional": (
        lambda: flow.searchsorted(T([1.0, 2.0]), T([2.0]), True, True),
        lambda: T([2], dtype=torch.int32),
    ),
    "gather sparse": (lambda: flow.gather(m(), 1, T([[0], [1]]), False), lambda: T([[0.0], [4.0]])),
    "scatter scalar": (lambda: flow.scatter(torch.zeros(3), 0, T([1]), src=2.0), lambda: T([0.0, 2.0, 0.0])),
    "index_add alpha": (
        lambda: flow.index_add(m(), 0, T([0]), torch.ones(1, 3), 2),
        lambda: m() + T([[2.0], [0.0]]),
    ),
    "batch_gather": (
        lambda: flow.batch_gather(m(), T([[0, 1], [2, 0]])),
        lambda: T([[0.0, 1.0], [5.0, 3.0]]),
    ),
    "batch_gather 1-D": (
        lambda: flow.batch_gather(**{"in": m()}, indices=T([1, 1])),
        lambda: T([[3.0, 4, 5], [3, 4, 5]]),
    ),
    "gather_nd": (lambda: flow.gather_nd(m(), T([[[0, 1]], [[1, 2]]])), lambda: T([[1.0], [5.0]])),
    "scatter_nd": (lambda: flow.scatter_nd(T([[1], [1]]), T([5.0, 6.0]), [3]), lambda: T([0.0, 11.0, 0.0])),
    "tensor_scatter_nd_update": (
        lambda: flow.tensor_scatter_nd_update(torch.zeros(2, 2), T([[1]]), T([[5.0, 6.0]])),
        lambda: T([[0.0, 0], [5, 6]]),
    ),
    "slice": (lambda: flow.slice(m(), [(1, None, None), [None, None, 2]]), lambda: T([[3.0, 5.0]])),
    # shape
    "transpose perm": (lambda: flow.transpose(m(), perm=[1, 0]), lambda: m().t()),
    "transpose list": (lambda: flow.transpose(m(), [1, 0]), lambda: m().t()),
    "transpose dims": (lambda: flow.transpose(m(), dim0=0, dim1=1), lambda: m().t()),
    "hsplit keyword": (lambda: flow.hsplit(m(), indices_or_sections=[1]), lambda: torch.hsplit(m(), [1])),
    "tensor_split torch": (
        lambda: flow.tensor_split(m(), sections=2, dim=1),
        lambda: torch.tensor_split(m(), 2, 1),
    ),
    "split x": (
        lambda: flow.split(x=m(), split_size_or_sections=[1, 2], dim=1),
        lambda: torch.split(m(), [1, 2], 1),
    ),
    "split tensor": (lambda: flow.split(tensor=m(), split_size_or_sections=1), lambda: torch.split(m(), 1)),
    "flip int": (lambda: flow.flip(t(), 0), lambda: torch.flip(t(), (0,))),
    "expand": (lambda: flow.expand(t(), 2, -1), lambda: t().expand(2, 3)),
    "repeat": (lambda: flow.repeat(t(), (2, 1)), lambda: t().repeat(2, 1)),
    "view": (lambda: flow.view(m(), 3, 2), lambda: m().view(3, 2)),
    "atleast_2d": (lambda: flow.atleast_2d(input=T(1.0)), lambda: T([[1.0]])),
    "atleast_1d list": (lambda: flow.atleast_1d([T(1.0), T(2.0)]), lambda: (T([1.0]), T([2.0]))),
    "bitwise scalar first": (lambda: flow.bitwise_and(6, T([3])), lambda: T([2])),
    "cast": (lambda: flow.cast(t(), flow.int32), lambda: t().int()),
    "broadcast_like": (lambda: flow.broadcast_like(torch.ones(3), m()), lambda: torch.ones(2, 3)),
    "broadcast_like axes": (
        lambda: flow.broadcast_like(T([1.0, 2.0]), m(), [1]),
        lambda: T([[1.0] * 3, [2.0] * 3]),
    ),
    "unflatten": (lambda: flow.unflatten(t(), 0, shape=(3, 1)), lambda: t().reshape(3, 1)),
    "broadcast_to": (lambda: flow.broadcast_to(t(), shape=(2, 3)), lambda: t().expand(2, 3)),
    "swapaxes": (lambda: flow.swapaxes(m(), dim0=0, dim1=1), lambda: m().t()),
    "repeat_interleave": (
        lambda: flow.repeat_interleave(t(), T([1, 0, 2]), 0, 3),
        lambda: T([1.0, -3.0, -3.0]),
    ),
    "pad": (lambda: flow.pad(t().reshape(1, 3), (1, 0), "constant", 2), lambda: T([[2.0, 1, 2, -3]])),
    "meshgrid": (
        lambda: flow.meshgrid(T([1]), T([2, 3])),
        lambda: torch.meshgrid(T([1]), T([2, 3]), indexing="ij"),
    ),
    # products
    "matmul transpose_b": (
        lambda: flow.matmul(m(), m(), transpose_b=True, alpha=2.0),
        lambda: 2 * m() @ m().t(),
    ),
    "matmul mixed": (lambda: flow.matmul(m().int(), m().t()), lambda: m() @ m().t()),
    "matmul 1-D": (lambda: flow.matmul(m(), t()), lambda: m() @ t()),
    "bmm": (lambda: flow.bmm(m()[None], m()[None], False, True), lambda: (m() @ m().t())[None]),
    "bmm torch": (lambda: flow.bmm(input=m()[None], mat2=m().t()[None]), lambda: (m() @ m().t())[None]),
    "mm mixed": (lambda: flow.mm(m().double(), mat2=m().t()), lambda: (m() @ m().t()).double()),
    "addmm": (lambda: flow.addmm(torch.ones(2, 2), m(), m().t(), 2, 3), lambda: 3 + 2 * m() @ m().t()),
    "addmm torch": (
        lambda: flow.addmm(torch.ones(2, 2), m(), m().t(), beta=3, alpha=2),
        lambda: 3 + 2 * m() @ m().t(),
    ),
    "dot": (lambda: flow.dot(t(), other=t()), lambda: T(14.0)),
    "linalg.norm dtype": (
        lambda: flow.linalg.norm(m(), None, None, False, torch.float64),
        lambda: torch.linalg.norm(m().double()),
    ),
    "linalg.vector_norm self": (lambda: flow.linalg.vector_norm(self=m(), ord=1), lambda: T(15.0)),
    "linalg.cross": (
        lambda: flow.linalg.cross(t(), t().flip(0), -1),
        lambda: torch.linalg.cross(t(), t().flip(0)),
    ),
    "linalg.diagonal": (lambda: flow.linalg.diagonal(m(), 1), lambda: T([1.0, 5.0])),
    "linalg.inv": (lambda: flow.linalg.inv(A=torch.eye(2) * 2), lambda: torch.eye(2) / 2),
    # activations
    "gelu": (lambda: flow.gelu(t(), "tanh"), lambda: torch.nn.functional.gelu(t(), approximate="tanh")),
    "quick_gelu": (lambda: flow.quick_gelu(t()), lambda: t() * torch.sigmoid(1.702 * t())),
    "square_relu": (lambda: flow.square_relu(t()), lambda: T([1.0, 4.0, 0.0])),
    "softshrink": (lambda: flow.softshrink(t(), alpha=1.0), lambda: T([0.0, 1.0, -2.0])),
    "softmax": (lambda: flow.softmax(m()), lambda: torch.softmax(m(), 1)),
    "softmax 3-D": (lambda: flow.softmax(m()[None]), lambda: torch.softmax(m()[None], 0)),
    "softmax names": (lambda: flow.softmax(input=m(), dim=0), lambda: torch.softmax(m(), 0)),
    "log_softmax": (lambda: flow.log_softmax(t()), lambda: torch.log_softmax(t(), 0)),
    "channels last pool": (
        lambda: flow.adaptive_avg_pool2d(torch.ones(1, 4, 4, 2), 2, "channels_last"),
        lambda: torch.ones(1, 2, 2, 2),
    ),
}


@pytest.mark.filterwarnings("ignore:.*rectangular window")
@pytest.mark.parametrize("case", CASES)
def test_value(case):
    ours, theirs = CASES[case]
    # a kernel of its own rounds once instead of twice
    assert_equal(ours(), theirs(), rtol=1e-6 if case == "quick_gelu" else 0.0)


@pytest.mark.filterwarnings("ignore:.*rectangular window")
def test_stft_is_real_by_default():
    x = torch.arange(16.0)
    z = torch.stft(x, 4, return_complex=True)
    assert_equal(flow.stft(x, 4), torch.view_as_real(z))
    assert_equal(flow.stft(x, 4, return_complex=True), z)


def test_functions_work_on_0d_empty_strided_and_bfloat16():
    for x in (T(2.0), torch.ones(0, 3), m().t(), m().bfloat16(), torch.ones(2, 0)):
        assert_equal(flow.softmax(x, 0), torch.softmax(x, 0))
        assert_equal(flow.where(x > 1, x, x), torch.where(x > 1, x, x))
        assert_equal(flow.add(x, x), x + x)
        assert_equal(flow.relu(x), torch.relu(x))
        assert_equal(flow.sort(x)[0], torch.sort(x)[0])
        assert_equal(flow.eq(1, x), torch.eq(x, 1))
        assert_equal(flow.logical_and(x, True), torch.logical_and(x, T(True)))
        assert_equal(flow.cumsum(x, 0), torch.cumsum(x, 0))


def test_inplace_keyword_changes_the_first_argument():
    for name in ("add", "sub", "mul", "pow", "fmod"):
        x = t()
        y = getattr(flow, name)(x, 2, inplace=True)
        assert y is x
        assert_equal(x, getattr(torch, name)(t(), 2))
        z = t()
        assert getattr(flow, name)(z, 2, inplace=False) is not z
    x = t()
    assert flow.add([x, t()], inplace=True) is x and torch.equal(x, 2 * t())
    x = t()
    assert flow.softshrink(x, inplace=True) is x and torch.equal(x, torch.nn.functional.softshrink(t()))
    with pytest.raises(RuntimeError, match="leaf"):
        flow.softshrink(t().requires_grad_(), inplace=True)


def test_slice_update_writes_in_place_with_gradient():
    x, u = torch.zeros(2, 3), torch.ones(1, 2, requires_grad=True)
    y = flow.slice_update(x, u * 2, [(0, 1, 1), (0, 2, 1)])
    y.sum().backward()
    assert y is x and x.tolist() == [[2.0, 2.0, 0.0], [0.0] * 3] and u.grad.tolist() == [[2.0, 2.0]]
    with pytest.raises(RuntimeError, match="shape"):
        flow.slice_update(torch.zeros(2, 3), torch.ones(2), [(0, 1, 1)])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: flow.batch_gather(x, T([[0, 1], [2, 0]])),
        lambda x: flow.gather_nd(x, T([[0, 1], [0, 1]])),
        lambda x: flow.scatter_nd(T([[1], [0]]), x, [3, 3]),
        lambda x: flow.tensor_scatter_nd_update(x, T([[1]]), x[:1] * 2),
        lambda x: flow.broadcast_like(x[:, :1], x),
        lambda x: flow.matmul(x, x, transpose_b=True),
        lambda x: flow.prod(x + 1, [0, 1]),
        lambda x: flow.norm(x, 1),
        lambda x: flow.softshrink(x),
        lambda x: flow.quick_gelu(x),
        lambda x: flow.slice(x, [(0, 1, 1)]),
        lambda x: flow.scatter(x, 0, T([[0, 1, 0], [0, 0, 1]]), x * 2 + 1, reduce="add"),
        lambda x: flow.scatter(x, 1, T([[0, 1], [0, 0]]), x * 2 + 1, reduce="multiply"),
        lambda x: flow.scatter(x, 0, T([[0, 1, 0]]), src=2.0, reduce="multiply"),
    ],
)
def test_gradients_of_our_own_functions(f):
    x = torch.rand(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(f, (x,))


def test_in_place_functions():
    x = t()
    assert flow.lerp_(x, x + 2, 0.5) is x and torch.equal(x, t() + 1)
    assert torch.equal(flow.div_(t(), 2), t() / 2) and torch.equal(flow.gt_(t(), 1), T([0.0, 1.0, 0.0]))
    assert torch.equal(flow.masked_fill_(t(), T([1, 0, 0]), 7), T([7.0, 2.0, -3.0]))
    assert torch.equal(flow.clamp_max_(t(), min=1), T([1.0, 1.0, -3.0]))
    assert torch.equal(flow.index_add_(torch.zeros(2), 0, T([1]), T([1.0]), 2), T([0.0, 2.0]))
    assert torch.equal(flow.normal_(flow.nn.Parameter(torch.ones(2)), 3.0, 0.0), T([3.0, 3.0]))


def test_distributed_partial_fc_sample_keeps_every_label():
    w, label = torch.arange(20.0).reshape(10, 2), T([7, 3, 7])
    mapped, sampled, weight = flow.distributed_partial_fc_sample(w, label, 4)
    assert sampled.shape == (4,) and torch.equal(sampled[mapped], label) and torch.equal(weight, w[sampled])
    assert flow.distributed_partial_fc_sample(w, torch.arange(6), 4)[1].shape == (6,)


def test_small_names():
    assert flow.is_tensor(obj=t()) and not flow.is_tensor(np.ones(1))
    assert flow.convert_oneflow_dtype_to_numpy_dtype(flow.float16) is np.float16
    assert flow.convert_oneflow_dtype_to_numpy_dtype(flow.bfloat16) is np.float32
    assert flow.float32 in flow.dtypes() and flow.char is torch.int8 and not flow.is_tracing()
    f = lambda x: x
    assert flow.script(f) is f and flow.jit.script(lambda x, **k: x).__name__ == "<lambda>"


def test_operators_by_name():
    add = flow.builtin_op("add_n").Input("in", 2).Output("out").Build()
    x = T([1.0, -2.0]).requires_grad_()
    (out,) = add(x, x)
    out.sum().backward()
    assert out.tolist() == [2.0, -4.0] and x.grad.tolist() == [2.0, 2.0]
    cast = flow.stateful_op("cast").Input("in").Output("out").Build()
    assert cast(T([1.5]), dtype=flow.int32)[0].dtype is torch.int32
    with pytest.raises(ValueError, match="2 inputs were declared, 1 tensors given"):
        add(x)
    with pytest.raises(NotImplementedError, match="legacy-user-ops"):
        flow.stateful_op("no_such_operator").Input("in").Output("out").Build()(x)


@pytest.mark.parametrize("name", sorted({**function_rows("oneflow"), **rename_rows("oneflow")}))
def test_every_function_of_ours_shows_a_signature_and_says_what_it_does(name):
    f = getattr(flow, name)
    if callable(f) and not isinstance(f, type):
        inspect.signature(f)
        assert f.__doc__ and f.__doc__.strip()


def test_dialect_switches_isclose_and_norm():
    a, b = T([1000.0]), T([1000.5])
    assert not flow.allclose(a, b, 1e-2, 0.0)
    flow.set_dialect("torch")
    try:
        assert flow.allclose is torch.allclose and flow.allclose(a, b, 1e-2, 0.0) and flow.norm(m(), 1) == 15
    finally:
        flow.set_dialect("oneflow")
    assert flow.norm(m(), 1) == 7
