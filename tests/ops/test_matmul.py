"""oneflow::mm and oneflow::bmm, products of float32 matrices. Under inductor, nn.Graph uses them if they are
faster than torch's.
"""

import pytest
import torch

import oneflow as flow
from oneflow._graph.compile.inductor import matmul
from oneflow._kernels import _ext


def unavailable():
    if _ext.status() != "loaded":
        return "needs the kernel library (csrc/build.py)"
    try:
        torch.ops.oneflow.mm(torch.ones(2, 2), torch.ones(2, 2))
    except RuntimeError as error:
        return f"torch has no such kernel for this processor: {error}".splitlines()[0]
    return ""


pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())


def layouts(rows, columns):
    """A matrix in several layouts: row-major, column-major, with gaps between rows, with gaps between
    elements, and one repeated row.
    """
    torch.manual_seed(0)
    yield torch.randn(rows, columns)
    yield torch.randn(columns, rows).t()
    yield torch.randn(rows, columns + 3)[:, :columns]
    yield torch.randn(columns, rows + 5)[:, 5:].t()
    yield torch.randn(rows, 2 * columns)[:, ::2]
    yield torch.randn(1, columns).expand(rows, columns)


@pytest.mark.parametrize(
    "m, k, n",
    [
        (3, 5, 7),
        (1, 40, 1),
        (1, 1, 9),
        (9, 1, 1),
        (64, 256, 256),
        (65, 257, 300),
        (200, 600, 17),
        (2, 300, 700),
    ],
)
def test_equals_torch_in_any_layout(m, k, n):
    for a in layouts(m, k):
        for b in layouts(k, n):
            exact = a.double() @ b.double()
            actual = torch.ops.oneflow.mm(a, b)
            assert actual.shape == exact.shape and actual.is_contiguous() and actual.dtype is torch.float32
            bound = (a.abs().double() @ b.abs().double()) * k * 2.0**-24  # of k additions in any order
            assert ((actual - exact).abs() <= bound + 1e-30).all()


def batches(size, rows, columns):
    """The same of a batch of matrices: whole, turned, with gaps between them, parts of a longer row (heads of
    attention), and one repeated.
    """
    torch.manual_seed(1)
    yield torch.randn(size, rows, columns)
    yield torch.randn(size, columns, rows).mT
    yield torch.randn(2 * size, rows, columns)[::2]
    yield torch.randn(rows, size, columns).transpose(0, 1)
    yield torch.randn(columns, rows, size).permute(2, 1, 0)
    yield torch.randn(1, rows, columns).expand(size, rows, columns)


@pytest.mark.parametrize(
    "size, m, k, n", [(1, 3, 5, 7), (3, 1, 40, 1), (2, 65, 17, 33), (5, 16, 16, 16), (2, 70, 300, 260)]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_batches_equal_torch_in_any_layout(size, m, k, n, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for a in batches(size, m, k):
            for b in batches(size, k, n):
                exact = a.double() @ b.double()
                actual = torch.ops.oneflow.bmm(a, b)
                assert (
                    actual.shape == exact.shape and actual.is_contiguous() and actual.dtype is torch.float32
                )
                bound = (a.abs().double() @ b.abs().double()) * k * 2.0**-24  # of k additions in any order
                assert ((actual - exact).abs() <= bound + 1e-30).all()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("size, m, k, n", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 4, 0)])
def test_batches_without_elements(size, m, k, n):
    assert torch.equal(
        torch.ops.oneflow.bmm(torch.randn(size, m, k), torch.randn(size, k, n)), torch.zeros(size, m, n)
    )


@pytest.mark.parametrize("m, k, n", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)])
def test_products_without_elements_are_zeros(m, k, n):
    assert torch.equal(torch.ops.oneflow.mm(torch.randn(m, k), torch.randn(k, n)), torch.zeros(m, n))


def test_infinities_and_nan_reach_the_result():
    a, b = torch.ones(20, 20), torch.ones(20, 20)
    a[3, 4], b[7, 8] = float("nan"), float("inf")
    assert torch.equal(torch.ops.oneflow.mm(a, b).nan_to_num(-1, -2), (a @ b).nan_to_num(-1, -2))


@pytest.mark.parametrize(
    "name, a, b, said",
    [
        ("mm", torch.ones(2, 3), torch.ones(4, 2), r"b must have shape \(3, any\), found \(4, 2\)"),
        ("mm", torch.ones(3), torch.ones(3, 2), r"a must have 2 dimensions, found 1: shape \(3\)"),
        (
            "mm",
            torch.ones(2, 3).double(),
            torch.ones(3, 2).double(),
            "a must have dtype float32, found float64",
        ),
        (
            "bmm",
            torch.ones(2, 2, 3),
            torch.ones(3, 3, 2),
            r"b must have shape \(2, 3, any\), found \(3, 3, 2\)",
        ),
    ],
)
def test_wrong_operands_are_named(name, a, b, said):
    with pytest.raises(RuntimeError, match=said):
        getattr(torch.ops.oneflow, name)(a, b)


def test_several_threads_give_the_same_bits():
    torch.manual_seed(0)
    a, b, threads = torch.randn(300, 500), torch.randn(500, 700), torch.get_num_threads()
    try:
        actual = []
        for torch_threads in (1, 3):
            torch.set_num_threads(torch_threads)
            actual.append(torch.ops.oneflow.mm(a, b.t().contiguous().t()))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*actual)


@pytest.mark.parametrize(
    "value, capability, maker, mkl, said",
    [
        ("0", "AVX512", "AuthenticAMD", True, False),
        ("off", "AVX512", "AuthenticAMD", True, False),
        ("1", "AVX2", "GenuineIntel", False, True),
        ("", "AVX512", "AuthenticAMD", True, True),
        ("", "AVX512", "HygonGenuine", True, True),
        ("", "AVX512", "GenuineIntel", True, False),
        ("", "AVX2", "AuthenticAMD", True, False),
        ("", "AVX512", "AuthenticAMD", False, False),
    ],
)
def test_processor_or_environment_selects_the_block_kernels(monkeypatch, value, capability, maker, mkl, said):
    monkeypatch.setenv("ONEFLOW_GRAPH_BLOCKS", value)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(matmul, "_processor", lambda: f"vendor_id : {maker}")
    with torch.autocast("cpu"), torch.device("meta"):  # the user's
        assert matmul.blocks_are_faster.__wrapped__() is said


def network(x, first, second):
    """A layer of 130 units and one of 3, whose products are not worth a call."""
    return (x @ first).tanh() @ second


def attention(q, k, v):
    return (q @ k.mT).softmax(-1) @ v


@pytest.mark.parametrize(
    "program, sizes, count",
    [  # forward and the gradients of both operands
        (network, [(100, 120), (120, 130), (130, 3)], 3),
        (attention, [(3, 60, 40)] * 3, 6),
        (attention, [(50, 6, 40)] * 3, 0),
        (network, [(2, 900), (900, 900), (900, 2)], 1),
    ],
)
@pytest.mark.parametrize("faster", [False, True])
def test_a_program_of_inductor_takes_them_where_they_are_faster(monkeypatch, program, sizes, count, faster):
    from torch._inductor import config as inductor_config

    from oneflow._graph.compile.inductor import settings

    monkeypatch.setattr(settings, "blocks_are_faster", lambda: faster)
    taken = []
    original = matmul.multiply_in_blocks
    ours = (torch.ops.oneflow.mm.default, torch.ops.oneflow.bmm.default)
    monkeypatch.setattr(
        matmul,
        "multiply_in_blocks",
        lambda graph: (original(graph), taken.append(sum(n.target in ours for n in graph.nodes))),
    )
    torch.manual_seed(faster)
    operands = [(torch.randn(size) / 8).requires_grad_() for size in sizes]

    @flow.nn.Graph.trace
    def graph(*operands):
        return torch.autograd.grad(program(*operands).square().sum(), operands)

    graph.config.set_backend("inductor")
    with inductor_config.patch(fx_graph_cache=False):  # cached graphs are not rewritten again
        results = graph(*operands)
    exact = [x.detach().double().requires_grad_() for x in operands]
    for actual, expected in zip(
        results, torch.autograd.grad(program(*exact).square().sum(), exact), strict=True
    ):
        # sums of up to 900 numbers in float32
        torch.testing.assert_close(actual.double(), expected, rtol=0, atol=1e-5 * expected.abs().max().item())
    assert taken == ([count] if faster else [])
