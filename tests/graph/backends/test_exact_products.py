"""Products of aten programs by oneDNN (_graph/compile/exact_products.py) give eager's bits."""

import contextlib

import pytest
import torch
from graph_cases import assert_same_training, graph_of
from torch import nn

from oneflow._graph.compile import exact_products
from oneflow._kernels import _ext


def unavailable():
    if _ext.status() != "loaded":
        return "needs the kernel library (csrc/build.py)"
    if not torch.ops.oneflow.product_blocks(None, torch.ones(64, 500), torch.ones(500, 64))[0]:
        return "no rule of blocks fits torch's products on this processor"
    return ""


pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())


@pytest.fixture(autouse=True)
def blocks_are_chosen(monkeypatch):
    """Choose the blocks that fit, even if ATen is faster here."""
    monkeypatch.setattr(exact_products, "_is_faster", _fits)


def _fits(node):
    infos = [operand and operand.meta["tensor"] for operand in exact_products._operands(node)]
    if not all(type(n) is int for info in infos if info for n in info.shape):
        return True
    examples = [info and torch.empty_strided(info.shape, info.stride) for info in infos]
    return torch.ops.oneflow.product_blocks(*examples)[0] > 0


def exact_calls(graph):
    """The number of calls of oneflow::exact_product in the program of a graph."""
    nodes = exact_products.in_exact_products(graph.program).graph.nodes
    return sum(node.target is torch.ops.oneflow.exact_product.default for node in nodes)


@contextlib.contextmanager
def rules(candidates):
    torch.ops.oneflow.product_rules(torch.ones(1), candidates)
    try:
        yield
    finally:
        torch.ops.oneflow.product_rules(torch.ones(1), [])


def wide():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(70, 300), nn.ReLU(), nn.Linear(300, 500), nn.Tanh(), nn.Linear(500, 40))


def loss_of(model, x):
    return model(x).pow(2).mean()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def batches(*sizes):
    return [(torch.randn(size, 70),) for size in sizes]


def test_training_bit_for_bit():
    graph = assert_same_training(wide(), sgd, loss_of, batches(*[37] * 10))
    assert exact_calls(graph) == 8


def test_training_with_batches_of_several_sizes():
    graph = assert_same_training(wide(), sgd, loss_of, batches(37, 64, 37, 16, 5, 1, 128, 200, 37, 64))
    assert exact_calls(graph) > 0


def test_attention_written_as_products():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, 4, 16).permute(2, 0, 3, 1, 4)
            weights = (q @ k.mT / 4).softmax(-1)
            return self.out((weights @ v).transpose(1, 2).reshape(b, t, 64))

    torch.manual_seed(0)
    inputs = [(torch.randn(3, 33, 64),) for _ in range(10)]
    graph = assert_same_training(Attention(), sgd, loss_of, inputs)
    assert exact_calls(graph) > 6


def test_wrong_rule_of_blocks_stays_with_aten():
    with rules([100]):
        graph = assert_same_training(wide(), sgd, loss_of, batches(*[37] * 10))
        assert exact_calls(graph) == 0


def test_another_number_of_threads():
    model, threads = wide(), torch.get_num_threads()
    (x,) = batches(128)[0]
    graph = graph_of(lambda x: model(x), model=model)
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            assert torch.equal(graph(x), model(x))
    finally:
        torch.set_num_threads(threads)


def test_denormal_values_as_the_user_set_them():
    a, b = torch.randn(64, 300) * 1e-22, torch.randn(300, 64) * 1e-18
    graph = graph_of(lambda a, b: a @ b)
    results = []
    try:
        for is_flushed in (False, True, False):
            torch.set_flush_denormal(is_flushed)
            results.append(graph(a, b))
            assert torch.equal(results[-1].view(torch.int32), (a @ b).view(torch.int32))
    finally:
        torch.set_flush_denormal(False)
    assert not torch.equal(results[0].view(torch.int32), results[1].view(torch.int32))


def test_other_precision_stays_with_aten():
    a, b = torch.randn(64, 300), torch.randn(300, 64)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        graph = graph_of(lambda a, b: a @ b)
        assert torch.equal(graph(a, b), a @ b)
        assert exact_calls(graph) == 0
    finally:
        torch.set_float32_matmul_precision(precision)
    assert torch.equal(graph(a, b), a @ b)
    assert exact_calls(graph) == 1


LEFT_TO_ATEN = {
    "float64": lambda x: x.double() @ x.double().t(),
    "bfloat16": lambda x: x.bfloat16() @ x.bfloat16().t(),
    "small": lambda x: x[:4] @ x[:4].t(),
    "one row": lambda x: x[:1] @ x.t(),
    "scaled": lambda x: torch.addmm(x[:, :1], x, x.t(), beta=0.5),
    "vector": lambda x: x @ x[0],
    "sparse": lambda x: torch.sparse.mm(x.relu().to_sparse(), x.t()),
}


@pytest.mark.parametrize("name", LEFT_TO_ATEN)
def test_left_to_aten(name):
    x = torch.randn(70, 300)
    graph = graph_of(LEFT_TO_ATEN[name])
    assert torch.equal(graph(x), LEFT_TO_ATEN[name](x))
    assert exact_calls(graph) == 0


def test_results_have_the_layout_of_aten():
    x, y, bias = torch.randn(300, 70), torch.randn(300, 90), torch.randn(90)
    for function in (lambda: x.t() @ y, lambda: torch.addmm(bias, x.t(), y)):
        graph = graph_of(function)
        assert graph().stride() == function().stride() and torch.equal(graph(), function())
        assert exact_calls(graph) == 1


def test_exact_products_are_a_pass_that_can_be_skipped():
    x = torch.randn(100, 300)
    keys = []
    for skip in ([], ["in_exact_products"]):
        graph = graph_of(lambda x: x @ x.t())
        graph.config.passes(skip=skip)
        graph(x)
        with torch.profiler.profile() as profile:
            result = graph(x)
        assert torch.equal(result, x @ x.t())
        keys.append("oneflow::exact_product" in {event.key for event in profile.key_averages()})
    assert keys == [True, False]
