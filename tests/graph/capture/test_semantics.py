"""Features of build(): closures, structures, buffers, modes, random numbers, blocks."""

import copy

import pytest
import torch
from graph_cases import graph_with
from torch import nn

import oneflow as flow
from oneflow.nn.graph.proxy import ProxyModule


def test_inference_and_new_shapes_share_weights():
    model = nn.Linear(3, 2)
    graph = graph_with(lambda self, x: self.m(x), {"m": model})
    for n in (1, 4, 1, 7):
        x = torch.randn(n, 3)
        assert torch.equal(graph(x), model(x))
    assert len(graph._engine.programs) == 3
    with torch.no_grad():
        model.weight.zero_()
    x = torch.randn(4, 3)
    assert torch.equal(graph(x), model(x))
    assert not graph(x).requires_grad


def test_cache_is_bounded():
    graph = graph_with(lambda self, x: x + 1, cache_size=2)
    for n in range(1, 6):
        assert torch.equal(graph(torch.zeros(n)), torch.ones(n))
    assert len(graph._engine.programs) == 2


def test_structures_in_and_out():
    def build(self, x, pair, *, options, flag=None):
        a, b = pair
        return {"sum": x + a, "list": [b * options["k"], None, (flag, 2.5)], "text": "t"}

    graph = graph_with(build)
    x, a, b = torch.randn(2), torch.randn(2), torch.randn(2)
    out = graph(x, (a, b), options={"k": 3}, flag=True)
    assert torch.equal(out["sum"], x + a) and torch.equal(out["list"][0], b * 3)
    assert out["list"][1:] == [None, (True, 2.5)] and out["text"] == "t"
    assert torch.equal(graph(x, [a, b], options={"k": 4})["list"][0], b * 4)


def test_closure_tensor_is_live():
    free = torch.ones(2)
    graph = graph_with(lambda self, x: x + free)
    assert torch.equal(graph(torch.zeros(2)), torch.ones(2))
    free.add_(1)
    assert torch.equal(graph(torch.zeros(2)), torch.full((2,), 2.0))


def test_constants_of_python_data_are_not_written_across_calls():
    def build(self, x):
        c = torch.tensor([1.0, 2.0])
        c.add_(x)
        return c

    graph = graph_with(build)
    for _ in range(3):
        assert torch.equal(graph(torch.ones(2)), torch.tensor([2.0, 3.0]))


def test_constant_item_is_python_data():
    graph = graph_with(lambda self, x: x * torch.tensor(3.0).item())
    assert torch.equal(graph(torch.ones(2)), torch.full((2,), 3.0))


def test_rebound_buffer_and_attribute_are_written_back():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.hidden = torch.zeros(2)
            self.cache = None

        def forward(self, x):
            self.count = self.count + 1
            self.hidden = torch.tanh(self.hidden + x)
            if self.cache is None:
                self.cache = torch.arange(2.0)
            return self.hidden + self.count + self.cache

    a, b = Counter(), Counter()
    graph = graph_with(lambda self, x: self.m(x), {"m": b})
    for _ in range(3):
        x = torch.randn(2)
        assert torch.equal(a(x), graph(x))
    assert torch.equal(a.count, b.count) and torch.equal(a.hidden, b.hidden) and torch.equal(a.cache, b.cache)


def test_train_and_eval_before_the_first_call_decide():
    model = nn.Dropout(0.5)
    model.eval()
    graph = graph_with(lambda self, x: self.m(x), {"m": model})
    x = torch.ones(100)
    assert torch.equal(graph(x), x)
    model.train()
    assert torch.equal(graph(x), x)
    y = torch.ones(50)
    assert torch.equal(graph(y), y) and model.training, (
        "a program for a new shape is captured in the same mode"
    )


def test_randomness_is_that_of_eager():
    def draw(x):
        return torch.rand(3) + torch.randn(3) * x + torch.bernoulli(torch.full((3,), 0.5)) + torch.randperm(3)

    graph = graph_with(lambda self, x: draw(x))
    torch.manual_seed(3)
    expected = [draw(torch.ones(3)) for _ in range(3)]
    torch.manual_seed(3)
    assert all(torch.equal(e, graph(torch.ones(3))) for e in expected)


def test_compile_runs_nothing():
    model = nn.Linear(2, 1)
    before = copy.deepcopy(model.state_dict())

    def build(self, x):
        loss = self.m(x).sum()
        loss.backward()
        return loss

    graph = graph_with(build, {"m": model}, [torch.optim.SGD(model.parameters(), lr=0.1)])
    program = graph._engine.compile(torch.ones(1, 2))
    assert "def G_" in str(program)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_buffers_of_a_module_are_written_only_by_running():
    model = nn.BatchNorm1d(2)
    other = copy.deepcopy(model)
    graph = graph_with(lambda self, x: self.m(x), {"m": model})
    for _ in range(3):
        x = torch.randn(4, 2)
        assert torch.equal(other(x), graph(x))
    assert torch.equal(model.running_var, other.running_var) and model.num_batches_tracked == 3


class Probe:
    """Ask for a module, hook a layer, look it up and wrap it, as libraries that explain models do."""

    def __init__(self, model, layer):
        assert isinstance(model, nn.Module) and isinstance(layer, nn.Linear)
        self.model, self.layer, self.seen = nn.Sequential(model), layer, {}

    def __call__(self, x):
        handle = self.layer.register_forward_hook(
            lambda module, args, out: self.seen.__setitem__(module, out)
        )
        out = self.model(x)
        handle.remove()
        return out.sum() + self.seen[self.layer].square().sum()


def test_libraries_take_a_block_for_its_module():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3)
    want = Probe(model, model[0])(x)

    class Graph(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, x):
            assert (
                self.model[0] == model[0]
                and self.model[0] != self.model[2]
                and {self.model[2]: 1}[model[2]] == 1
            )
            return Probe(self.model, self.model[0])(x)

    graph = Graph()
    assert torch.equal(graph(x), want)
    assert type(graph.model) is graph.model.__class__ is ProxyModule and not isinstance(
        graph.model, nn.Module
    )
    assert list(model.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.svdvals,
        torch.linalg.cond,
        lambda x: torch.linalg.eigvalsh(x @ x.mT),
        lambda x: torch.linalg.matrix_norm(x, "nuc"),
        lambda x: torch.linalg.norm(x, 2),
        lambda x: x.norm("nuc"),
        torch.linalg.matrix_rank,
        lambda x: (torch.linalg.svdvals(x), torch.linalg.svd(x).S),
    ],
)
def test_values_without_vectors_have_eager_bits(function, trained):
    """For values alone LAPACK uses another algorithm, which torch selects if no gradient needs the
    vectors.
    """
    torch.manual_seed(0)
    x = torch.randn(7, 7, requires_grad=trained)
    graph = flow.nn.Graph.trace(lambda x: function(x))
    graph.config.set_backend("aten")
    actual, expected = graph(x), function(x)
    assert all(
        torch.equal(a, b)
        for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (actual, expected)))
    )
