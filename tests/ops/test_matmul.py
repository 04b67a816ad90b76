"""oneflow::mm, the product of float32 matrices that nn.Graph takes under inductor where it is faster than torch's."""
import pytest
import torch
from torch import nn

import oneflow as flow
from oneflow._graph.backends import products
from oneflow._ops.custom import _ext


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
    """The same kind of matrix in memory row by row, column by column, with gaps, with gaps between the numbers, and of one row repeated."""
    torch.manual_seed(0)
    yield torch.randn(rows, columns)
    yield torch.randn(columns, rows).t()
    yield torch.randn(rows, columns + 3)[:, :columns]
    yield torch.randn(columns, rows + 5)[:, 5:].t()
    yield torch.randn(rows, 2 * columns)[:, ::2]
    yield torch.randn(1, columns).expand(rows, columns)


@pytest.mark.parametrize("m, k, n", [(3, 5, 7), (1, 40, 1), (1, 1, 9), (9, 1, 1), (64, 256, 256), (65, 257, 300), (200, 600, 17), (2, 300, 700)])
def test_equals_torch_in_any_layout(m, k, n):
    for a in layouts(m, k):
        for b in layouts(k, n):
            exact = a.double() @ b.double()
            found = torch.ops.oneflow.mm(a, b)
            assert found.shape == exact.shape and found.is_contiguous() and found.dtype is torch.float32
            bound = (a.abs().double() @ b.abs().double()) * k * 2.0**-24  # of k additions in any order
            assert ((found - exact).abs() <= bound + 1e-30).all()


@pytest.mark.parametrize("m, k, n", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)])
def test_without_elements(m, k, n):
    assert torch.equal(torch.ops.oneflow.mm(torch.randn(m, k), torch.randn(k, n)), torch.zeros(m, n))


def test_infinities_and_nan_reach_the_result():
    a, b = torch.ones(20, 20), torch.ones(20, 20)
    a[3, 4], b[7, 8] = float("nan"), float("inf")
    assert torch.equal(torch.ops.oneflow.mm(a, b).nan_to_num(-1, -2), (a @ b).nan_to_num(-1, -2))


@pytest.mark.parametrize("a, b, said", [
    (torch.ones(2, 3), torch.ones(4, 2), "3 columns and 4 rows"), (torch.ones(3), torch.ones(3, 2), "1 and 2 dimensions"),
    (torch.ones(2, 3).double(), torch.ones(3, 2).double(), "float32, found Double"),
])
def test_wrong_operands_are_named(a, b, said):
    with pytest.raises(RuntimeError, match=said):
        torch.ops.oneflow.mm(a, b)


def test_several_threads_give_the_same_bits():
    torch.manual_seed(0)
    a, b, threads = torch.randn(300, 500), torch.randn(500, 700), torch.get_num_threads()
    try:
        found = []
        for torch_threads in (1, 3):
            torch.set_num_threads(torch_threads)
            found.append(torch.ops.oneflow.mm(a, b.t().contiguous().t()))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)


@pytest.mark.parametrize("faster", [False, True])
def test_a_program_of_inductor_takes_it_where_it_is_faster(monkeypatch, faster):
    from oneflow._graph.backends import settings
    from torch._inductor import config as inductor_config

    monkeypatch.setattr(settings, "blocks_are_faster", lambda: faster)
    taken = []
    original = products.multiply_in_blocks
    monkeypatch.setattr(products, "multiply_in_blocks", lambda graph: (original(graph), taken.append(sum(n.target is torch.ops.oneflow.mm.default for n in graph.nodes))))
    torch.manual_seed(faster)
    model, x = nn.Sequential(nn.Linear(120, 130), nn.Tanh(), nn.Linear(130, 3)), torch.randn(100, 120, requires_grad=True)

    @flow.nn.Graph.trace
    def graph(x):
        return torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])

    graph.config.set_backend("inductor")
    with inductor_config.patch(fx_graph_cache=False):  # what is in the cache is not rewritten again
        results = graph(x)
    for found, wanted in zip(results, torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()]), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)  # sums of 130 numbers in another order
    assert taken == ([3] if faster else [])  # forward and both gradients of the large layer
