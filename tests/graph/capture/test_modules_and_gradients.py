"""Modules as results of build(), p.grad after backward(), and the file of learning rates."""

import os
import platform
import warnings

import pytest
import torch

import oneflow as flow
import oneflow.nn as nn


def graph_of(build, **attributes):
    graph = type("Made", (nn.Graph,), {"build": build})()
    for name, value in attributes.items():
        setattr(graph, name, value)
    return graph


# -- modules as results --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(2, 3),
        lambda: nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)),
        lambda: nn.ReLU(),
        lambda: nn.LSTM(2, 3),
        lambda: nn.ParameterList([nn.Parameter(torch.ones(2))]),
        lambda: nn.CrossEntropyLoss(weight=torch.ones(2)),
    ],
    ids=["Linear", "Sequential", "ReLU", "LSTM", "ParameterList", "CrossEntropyLoss"],
)
def test_module_created_in_build_is_returned_with_real_tensors(make):
    torch.manual_seed(5)
    module = graph_of(lambda self: make())()
    torch.manual_seed(5)
    expected = make()
    assert type(module) is type(expected) and not any(t.is_lazy for t in module.state_dict().values())
    assert all(
        type(p) is type(q) and torch.equal(p, q)
        for p, q in zip(module.parameters(), expected.parameters(), strict=True)
    )
    assert all(torch.equal(p, q) for p, q in zip(module.buffers(), expected.buffers(), strict=True))


def test_module_that_was_there_is_handed_back_itself():
    layer = nn.Linear(2, 3)
    module, out = graph_of(lambda self, x: (layer, layer(x)))(torch.ones(1, 2))
    assert module is layer and torch.equal(out, layer(torch.ones(1, 2)))


def skips_initialization(x):
    layer = torch.nn.utils.skip_init(torch.nn.Linear, 2, 3)
    layer.reset_parameters()
    return layer(x)


def is_converted(x):
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    layers[1].weight = first = layers[0].weight
    layers.double()(x.double()).sum().backward()
    assert layers[0].weight is first is layers[1].weight
    return first.grad


def is_converted_after_backward(x):
    layer = nn.Linear(2, 3)
    layer(x).sum().backward()
    return layer.double().weight.grad


@pytest.mark.parametrize("build", [skips_initialization, is_converted, is_converted_after_backward])
def test_a_layer_of_build_changes_device_and_dtype(build):
    graph, x = graph_of(lambda self, x: build(x)), torch.randn(4, 2)
    for seed in range(3):
        torch.manual_seed(seed)
        expected = build(x)
        torch.manual_seed(seed)
        got = graph(x)
        assert got.dtype == expected.dtype and torch.equal(got, expected)


def test_other_objects_are_refused_with_onefows_class_of_error():
    with pytest.raises(NotImplementedError, match="output"):
        graph_of(lambda self, x: object())(torch.ones(2))


# -- p.grad --------------------------------------------------------------------------------------------------
def loss_of(self, x):
    loss = self.layer(x).sum()
    loss.backward()
    return loss


@pytest.mark.parametrize("before", [None, torch.tensor([[5.0, 7.0]])], ids=["without", "with"])
@pytest.mark.parametrize("optimizer", [False, True], ids=["inference", "training"])
def test_gradients_of_parameters_stay_as_they_were(before, optimizer):
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.grad = None if before is None else before.clone()
    graph = graph_of(loss_of, layer=layer)
    if optimizer:
        graph.add_optimizer(torch.optim.SGD(layer.parameters(), lr=0.1))
    graph(torch.ones(1, 2)), graph(torch.ones(1, 2))
    assert layer.weight.grad is None if before is None else torch.equal(layer.weight.grad, before)


def test_backward_that_does_nothing_is_warned_about_once():
    graph = graph_of(loss_of, layer=nn.Linear(2, 1))
    with pytest.warns(UserWarning, match="backward\\(\\) has no effect"):
        graph(torch.ones(1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(torch.ones(1, 2)), graph(torch.ones(3, 2))


def _returned(self, x):
    loss_of(self, x)
    return self.layer.weight.grad


def _copied_to_buffer(self, x):
    loss_of(self, x)
    self.layer.seen.copy_(self.layer.weight.grad)
    return x


def _stepped_by_hand(self, x):
    loss_of(self, x)
    with torch.no_grad():
        self.layer.weight -= self.layer.weight.grad
    return x


@pytest.mark.parametrize("build", [_returned, _copied_to_buffer, _stepped_by_hand])
def test_backward_whose_gradients_are_used_is_not_warned_about(build):
    layer = nn.Linear(2, 1)
    layer.register_buffer("seen", torch.zeros(1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph_of(build, layer=layer)(torch.ones(1, 2))


# -- learning rates under ONEFLOW_DEBUG_MODE -----------------------------------------------------------------
def rates_of(graph, calls):
    for _ in range(calls):
        graph(torch.ones(1, 2))
    with open(os.path.join("log", platform.node(), f"{os.getpid()}-train_step2lr.csv")) as file:
        return file.read()


def test_learning_rates_are_written_in_debug_mode(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONEFLOW_DEBUG_MODE", "1")
    layer = nn.Linear(2, 1)
    optimizer = flow.optim.SGD(layer.parameters(), lr=0.2)
    graph = graph_of(loss_of, layer=layer)
    graph.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(optimizer, 2))
    # real OneFlow 0.9.0's file for this schedule
    assert (
        rates_of(graph, 5)
        == "train_step, lr\n0, 0.200000\n1, 0.200000\n2, 0.020000\n3, 0.020000\n4, 0.002000\n"
    )
    constant = graph_of(loss_of, layer=layer)
    constant.add_optimizer(flow.optim.SGD(layer.parameters(), lr=0.5))
    assert rates_of(constant, 1) == "train_step, lr\n0, 0.500000\n"


@pytest.mark.parametrize("mode, optimizer", [("0", True), ("1", False)])
def test_no_learning_rates_are_written_otherwise(monkeypatch, tmp_path, mode, optimizer):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONEFLOW_DEBUG_MODE", mode)
    layer = nn.Linear(2, 1)
    graph = graph_of(loss_of, layer=layer)
    if optimizer:
        graph.add_optimizer(flow.optim.SGD(layer.parameters(), lr=0.5))
    graph(torch.ones(1, 2))
    assert not os.listdir(tmp_path)


# -- gradients that branch on values in eager ----------------------------------------------------------------
def gradient_of(x, product):
    y = product(x)
    (y * y).sum().backward()
    return y, x.grad


@pytest.mark.parametrize(
    "product",
    [
        torch.prod,
        lambda x: x.prod(-1),
        lambda x: torch.prod(x, 0, keepdim=True),
        lambda x: x.prod(dtype=torch.float64),
        lambda x: torch.cumprod(x, dim=-1),
        lambda x: x.cumprod(0),
    ],
    ids=["full", "dim", "keepdim", "dtype", "cumulative", "cumulative method"],
)
def test_gradient_of_a_product_has_the_bits_of_eager_with_and_without_zeros(product):
    torch.manual_seed(1)
    without_zeros = torch.rand(3, 5) + 0.5
    one_zero, two_zeros = without_zeros.clone(), without_zeros.clone()
    one_zero[0, 2] = two_zeros[0, 0] = two_zeros[1, 1] = 0
    graph = graph_of(lambda self, x: gradient_of(x, product))
    for values in (without_zeros, one_zero, two_zeros):
        expected = gradient_of(values.clone().requires_grad_(), product)
        results = graph(values.clone().requires_grad_())
        assert all(torch.equal(a, b) for a, b in zip(expected, results, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("shape", [(3, 4), (3, 1), (), (0, 3)])
def test_gradient_of_a_product_of_a_parameter_has_the_bits_of_eager(dtype, shape):
    torch.manual_seed(1)
    weight = nn.Parameter(torch.randn(shape, dtype=dtype))

    def gradient(w):
        results = [w.prod()]
        if w.dim():
            results += [torch.prod(w, 0), w.t().prod(-1, keepdim=True)]
        if w.numel():
            results += [w.cumprod(0), torch.cumprod(w, dim=-1)]
        real = [torch.view_as_real(r) if r.is_complex() else r for r in results]
        return torch.autograd.grad(sum(r.sum() for r in real), w)

    class Gradient(nn.Graph):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList([weight])

        def build(self):
            return gradient(weight)

    (expected,), (result,) = gradient(weight), Gradient()()
    assert torch.equal(result, expected)
