"""Optimizer options that change before each call: one program serves all values, bitwise equal to eager."""

import copy
import warnings

import pytest
import torch
from torch import nn

import oneflow as flow
from oneflow._errors import OneFlowError

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Step(flow.nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.config.set_backend("aten")
        self.add_optimizer(optimizer)

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def trained(steps, values, name, make, as_graph):
    """Return the losses, the parameters and the number of programs after a step for each value."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    optimizer = make(model.parameters())
    graph = Step(model, optimizer)
    losses = []
    for index in range(steps):
        optimizer.param_groups[0][name] = values(index)
        if as_graph:
            losses.append(graph(X).clone())
        else:
            optimizer.zero_grad()
            losses.append(graph.build(X).detach())
            optimizer.step()
    return losses, copy.deepcopy(model.state_dict()), len(graph._engine.programs)


def assert_equal_to_eager(make, name, values, steps, programs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eager_losses, eager_state, _ = trained(steps, values, name, make, as_graph=False)
        losses, state, count = trained(steps, values, name, make, as_graph=True)
    for index, (loss, expected) in enumerate(zip(losses, eager_losses)):
        assert torch.equal(loss, expected), f"step {index}"
    assert all(torch.equal(state[key], value) for key, value in eager_state.items())
    assert count <= programs


def optimizer(name, **options):
    return lambda parameters: getattr(torch.optim, name)(parameters, **options)


def test_momentum_that_warms_up_is_an_input():
    make = optimizer("SGD", lr=0.1, momentum=0.5)
    assert_equal_to_eager(make, "momentum", lambda i: 0.5 + 0.0045 * i, steps=100, programs=2)


def test_betas_that_warm_up_are_inputs():
    make = optimizer("Adam", lr=0.01)
    assert_equal_to_eager(make, "betas", lambda i: (0.8 + 0.001 * i, 0.99 + 0.0001 * i), 100, programs=2)


OPTIONS = {
    "SGD.dampening": (optimizer("SGD", lr=0.1, momentum=0.9), lambda i: 0.01 * i),
    "SGD.weight_decay": (optimizer("SGD", lr=0.1), lambda i: 0.01 * i),
    "Adam.eps": (optimizer("Adam"), lambda i: 1e-8 * (i + 1)),
    "AdamW.weight_decay": (optimizer("AdamW"), lambda i: 0.01 * (i + 1)),
    "AdamW.betas": (optimizer("AdamW", amsgrad=True), lambda i: (0.9 - 0.02 * i, 0.99)),
    "RMSprop.alpha": (optimizer("RMSprop", momentum=0.1, centered=True), lambda i: 0.9 + 0.005 * i),
    "Adagrad.lr_decay": (optimizer("Adagrad"), lambda i: 0.01 * (i + 1)),
    "Adadelta.rho": (optimizer("Adadelta"), lambda i: 0.9 - 0.01 * i),
    "Adamax.betas": (optimizer("Adamax"), lambda i: (0.9 - 0.02 * i, 0.99)),
    "NAdam.momentum_decay": (optimizer("NAdam"), lambda i: 4e-3 + 1e-3 * i),
    "NAdam.betas": (optimizer("NAdam"), lambda i: (0.9 - 0.02 * i, 0.99)),
    "RAdam.weight_decay": (optimizer("RAdam"), lambda i: 0.01 * (i + 1)),
    "ASGD.alpha": (optimizer("ASGD"), lambda i: 0.75 - 0.01 * i),
    "Rprop.etas": (optimizer("Rprop"), lambda i: (0.5 - 0.01 * i, 1.2 + 0.01 * i)),
    "Rprop.etas for loop": (optimizer("Rprop", foreach=False), lambda i: (0.5 - 0.01 * i, 1.2 + 0.01 * i)),
    "Rprop.step_sizes": (optimizer("Rprop"), lambda i: (1e-6 * (i + 1), 50.0 - i)),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_option_of_an_optimizer_is_an_input(case):
    make, values = OPTIONS[case]
    name = case.split(".")[1].split()[0]
    # RAdam branches on its step counter once
    assert_equal_to_eager(make, name, values, steps=8, programs=3 if "RAdam" in case else 2)


def test_integers_are_inputs_like_floats():
    make = optimizer("SGD", lr=0.1, momentum=0.5)
    assert_equal_to_eager(make, "weight_decay", lambda i: i + 1, steps=6, programs=2)


class FromPythonData(torch.optim.Optimizer):
    """Makes a tensor of its rate in a way that keeps no trace of the number."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(torch.asarray([group["lr"]]) * parameter.grad)


def test_changing_number_in_a_constant_tensor_is_refused():
    model = nn.Linear(4, 2)
    with pytest.raises(OneFlowError, match="into a constant tensor"):
        Step(model, FromPythonData(model.parameters()))(X)
