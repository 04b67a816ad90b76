"""Activations that a program keeps for the backward pass: only the result if it is sufficient, and only one
copy for several readers.
"""

import copy

import pytest
import torch
from graph_cases import assert_same_training, graph_of
from torch import nn
from torch.nn import functional as F

aten = torch.ops.aten
KEPT = [aten.clone.default, aten.hardtanh_backward.default, aten.leaky_relu_backward.default]


def targets(graph):
    return [n.target for n in graph.program.graph.nodes if n.op == "call_function"]


def sgd(p):
    return torch.optim.SGD(p, lr=0.1)


def batches():
    torch.manual_seed(1)
    return [
        (torch.cat([torch.randn(5, 4) * 4, torch.tensor([[0.0, 6.0, -1.0, float("nan")]])]),)
        for _ in range(3)
    ]


ACTIVATIONS = {
    "relu6": nn.ReLU6(),
    "relu6 in place": nn.ReLU6(inplace=True),
    "hardtanh": nn.Hardtanh(-0.5, 0.25, inplace=True),
    "leaky": nn.LeakyReLU(0.1),
    "leaky in place": nn.LeakyReLU(inplace=True),
}


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_gradients_read_the_result(activation):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), activation, nn.Linear(8, 1))
    graph = assert_same_training(
        model, sgd, lambda model, x: model(torch.nan_to_num(x)).square().mean(), batches()
    )
    backward = next(n for n in graph.program.graph.nodes if n.target in KEPT[1:])
    result = next(n for n in graph.program.graph.nodes if n.target is aten.addmm.default)
    forward = next(
        n
        for n in graph.program.graph.nodes
        if "backward" not in str(n.target) and ("hardtanh" in str(n.target) or "leaky_relu" in str(n.target))
    )
    assert backward.args[1] is (result if activation.inplace else forward)
    assert aten.clone.default not in targets(graph)


def test_values_at_the_bounds_and_nan():
    x = torch.tensor(
        [-1.0, -0.0, 0.0, 1e-45, -1e-45, 3.0, 6.0, 7.0, float("nan"), float("inf"), -float("inf")]
    )
    for function in (
        F.relu6,
        lambda t: F.leaky_relu(t, 0.2),
        lambda t: F.relu6(t * 1.0, inplace=True),
        lambda t: F.leaky_relu(t * 1.0, 0.2, inplace=True),
    ):
        eager = x.clone().requires_grad_()
        function(eager).sum().backward()

        def gradient(t, function=function):
            return torch.autograd.grad(function(t).sum(), t)[0]

        actual = graph_of(gradient)(x.clone().requires_grad_())
        assert torch.equal(torch.nan_to_num(actual, 9.0), torch.nan_to_num(eager.grad, 9.0))


@pytest.mark.parametrize(
    "function",
    [
        lambda t: F.relu6(t * 1.0).add_(2.0) * 3.0,  # the result is overwritten
        lambda t: F.leaky_relu(t * 1.0, -0.5),  # the sides change
        lambda t: F.hardtanh((t * 1.0).bfloat16(), -0.1, 0.1),  # bfloat16 has no 0.1
    ],
    ids=["overwritten", "negative slope", "rounded bound"],
)
def test_what_keeps_the_input(function):
    x = torch.randn(50).mul(3)
    eager = x.clone().requires_grad_()
    function(eager).float().sum().backward()
    graph = graph_of(lambda t: torch.autograd.grad(function(t).float().sum(), t)[0])
    assert torch.equal(graph(x.clone().requires_grad_()), eager.grad)
    backward = next(n for n in graph.program.graph.nodes if n.target in KEPT[1:])
    assert "hardtanh" not in str(backward.args[1].target) and "leaky" not in str(backward.args[1].target)


@pytest.mark.slow
@pytest.mark.compiler
def test_inductor_keeps_one_copy_of_the_input_of_convolutions():
    """Depthwise convolutions run channels last. Each would otherwise compute its input again and keep it for
    its gradient.
    """
    torch.manual_seed(0)
    layers = [
        m
        for _ in range(3)
        for m in (
            nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(inplace=True),
        )
    ]
    model, x = nn.Sequential(*layers), torch.randn(4, 8, 32, 32)
    peaks, losses = {}, {}
    for backend in ("aten", "inductor"):
        mine = copy.deepcopy(model)

        def build(x, mine=mine):
            loss = mine(x).square().mean()
            loss.backward()
            return loss

        graph = graph_of(build, sgd(mine.parameters()), m=mine)
        graph.config.set_backend(backend)
        losses[backend] = [graph(x).item() for _ in range(3)]
        with torch.profiler.profile(profile_memory=True) as prof:
            graph(x)
        live = peaks[backend] = 0
        for event in sorted(
            (e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"),
            key=lambda e: e.start_ns(),
        ):
            live += event.nbytes()
            peaks[backend] = max(peaks[backend], live)
    assert losses["inductor"] == pytest.approx(losses["aten"], rel=1e-4)
    one = x.numel() * x.element_size()
    assert peaks["inductor"] < 8 * one, "7 of them; 9 where each convolution keeps its own"


@pytest.mark.compiler
def test_results_and_weights_keep_their_layout_under_channels_last():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ReLU6(inplace=True),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.ReLU(),
        nn.Conv2d(8, 5, 3),
        nn.ReLU(),
        nn.Conv2d(5, 5, 3, groups=5),
    )
    x, peaks = torch.randn(2, 3, 12, 12), {}
    for backend in ("aten", "inductor"):
        mine = copy.deepcopy(model)

        def build(x, mine=mine):
            middle = mine[:4](x)
            end = mine[4:](middle)
            end.square().mean().backward()
            return middle, end

        graph = graph_of(build, torch.optim.SGD(mine.parameters(), lr=0.5, momentum=0.9), m=mine)
        graph.config.set_backend(backend)
        for _ in range(3):
            out = graph(x)
        peaks[backend] = [*out, *(p.detach() for p in mine.parameters())]
    for a, b in zip(*peaks.values()):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-4, atol=1e-5)  # sums in another order
