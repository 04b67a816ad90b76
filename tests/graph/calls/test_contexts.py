"""Graphs called inside contexts: autocast, modes, transforms, torch.compile."""

import pytest
import torch
from torch import nn

import oneflow as flow


class Predict(flow.nn.Graph):
    def __init__(self, model, backend="aten"):
        super().__init__()
        self.model = model
        self.config.set_backend(backend)

    def build(self, x):
        return self.model(x)


class Step(Predict):
    def __init__(self, model):
        super().__init__(model)
        self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


x = torch.linspace(-1, 1, 32).view(4, 8)


@pytest.mark.parametrize("before", [True, False], ids=["eager first", "graph first"])
def test_autocast_keeps_no_weights_from_before_a_capture_or_of_it(model, before):
    graph = Predict(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = model(x) if before else None
        actual = graph(x)
        after = model(x)
        assert (
            type(after) is torch.Tensor
            and torch.equal(actual, after)
            and (first is None or torch.equal(first, after))
        )
    with torch.no_grad():
        model[0].weight.add_(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(graph(x), model(x)) and not torch.equal(graph(x), actual)


class Positions(nn.Linear):
    """As rotary positions are computed: in float32, whatever is around."""

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            angles = x @ self.weight
        return super().forward(x) * angles.sin()


@pytest.mark.parametrize("backend", ["aten", pytest.param("inductor", marks=pytest.mark.slow)])
def test_operators_computed_without_autocast_get_no_casts(backend, tmp_path):
    """The program has its own casts. Autocast around a call adds none, also for a program that was captured
    without autocast.
    """
    torch.manual_seed(0)
    module = Positions(8, 8)
    graph, plain = Predict(module, backend), Predict(module, backend)
    # fused sums may round otherwise
    expected, same = (
        module(x),
        torch.equal if backend == "aten" else torch.allclose,
    )
    assert same(plain(x), expected)
    plain.save(tmp_path)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same(graph(x), module(x)) and same(graph(x), module(x)) and not same(module(x), expected)
        assert same(flow.load_graph(tmp_path)(x), expected)


def test_affine_grid_multiplies_in_the_type_of_autocast():
    """The kernel calls torch's matrix product: the grid of a spatial transformer is bfloat16."""

    def loss_of(theta):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            grid = nn.functional.affine_grid(theta, (2, 3, 8, 8), align_corners=False)
        return grid, grid.sin().square().mean()

    @flow.nn.Graph.trace
    def graph(theta):
        grid, loss = loss_of(theta)
        return grid, *torch.autograd.grad(loss, [theta])

    graph.config.set_backend("aten")
    torch.manual_seed(0)
    theta = torch.randn(2, 2, 3, requires_grad=True)
    grid, loss = loss_of(theta)
    actual = graph(theta)
    assert (
        actual[0].dtype is torch.bfloat16
        and torch.equal(actual[0], grid)
        and torch.equal(actual[1], torch.autograd.grad(loss, theta)[0])
    )


def test_a_search_for_nan_in_gradients_does_not_stop_a_capture(model):
    graph = Step(model)
    with torch.autograd.set_detect_anomaly(True):
        assert graph(x) > graph(x)
        assert torch.is_anomaly_enabled()


@pytest.mark.parametrize(
    "transform", [torch.vmap, lambda f: torch.func.grad(lambda t: f(t).sum())], ids=["vmap", "grad"]
)
def test_a_transform_around_a_graph_raises_a_clear_error(model, transform):
    graph = Predict(model)
    with pytest.raises(RuntimeError, match="under a transform of torch.func"):
        transform(graph)(x)
    assert torch.equal(graph(x), model(x))


@pytest.mark.parametrize("backend", ["aten", "inductor"])
def test_torch_compile_around_a_graph_leaves_it_alone(model, backend):
    graph = Predict(model, backend)
    torch._dynamo.reset()
    outer = torch.compile(lambda t: graph(t + 1) * 2, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(outer(x), model(x + 1) * 2)
    assert len(graph._engine.programs) == 1


def test_inference_mode_around_a_call_does_not_stay_with_the_program(model):
    graph = Predict(model)
    with torch.inference_mode():
        assert graph(x).is_inference()
    assert not graph(x).is_inference()
    step = Step(model)
    with torch.inference_mode():
        assert step(x) > step(x)
