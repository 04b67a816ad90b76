"""Loss scaling and learning rates that are tensors: programs of the fuzzer that once differed from eager
mode.
"""

import copy

import pytest
import torch
from fuzz_cases import follow, inputs
from graph_cases import graph_of
from torch import nn

import oneflow as flow


# -- loss scaling ------------------------------------------------------------------------
def counting(p):
    class Counting(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                state = self.state[p]
                if not state:
                    state["step"], state["mean"] = 0, torch.zeros_like(p)
                state["step"] += 1
                state["mean"].mul_(0.9).add_(p.grad)
                p.add_(state["mean"], alpha=-self.param_groups[0]["lr"] / (1 - 0.9 ** state["step"]))

    return Counting(p)


@pytest.mark.parametrize("overflow", [(0,), (2,), (0, 1, 3)])
@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    lambda p: flow.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    counting,
], ids=["momentum", "dampening", "flow", "python counter"])  # fmt: skip
def test_an_overflow_at_any_step_leaves_state_as_it_was(make, overflow):
    torch.manual_seed(0)
    models = [nn.Linear(4, 2)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [make(list(m.parameters())) for m in models]
    scalers = [torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2) for _ in models]

    def build(x):
        loss = models[1](x).square().mean()
        loss.backward()
        return loss

    step = graph_of(build, optimizers[1], scalers[1], model=models[1])
    for i, x in enumerate(inputs()):
        x = x * float("inf") if i in overflow else x
        optimizers[0].zero_grad()
        scalers[0].scale(models[0](x).square().mean()).backward()
        scalers[0].step(optimizers[0])
        scalers[0].update()
        step(x)
        assert torch.equal(models[0].weight, models[1].weight), f"step {i}"
    assert scalers[0].state_dict() == scalers[1].state_dict()
    for a, b in zip(optimizers[0].state.values(), optimizers[1].state.values()):
        for key, value in a.items():
            assert torch.equal(value, b[key]) if isinstance(value, torch.Tensor) else value == b[key], key


def test_static_scaler_unscales_sparse_gradients():
    torch.manual_seed(0)
    model = nn.Embedding(6, 3, sparse=True)
    expected = model.weight.detach().clone()
    ids = torch.tensor([1, 4])
    expected[ids] -= 0.5  # lr * d(sum)

    def build(i):
        loss = model(i).sum()
        loss.backward()
        return loss

    graph_of(
        build, torch.optim.SGD(model.parameters(), lr=0.5), flow.amp.StaticGradScaler(64.0), model=model
    )(ids)
    assert torch.equal(model.weight, expected)


def test_a_static_scale_stays_after_an_overflow():
    model, scaler = nn.Linear(4, 2), flow.amp.StaticGradScaler(64.0)
    before = model.weight.detach().clone()
    step = graph_of(
        lambda x: model(x).sum().backward(), torch.optim.SGD(model.parameters(), lr=0.5), scaler, model=model
    )
    step(inputs()[0] * float("inf"))
    assert torch.equal(model.weight, before) and scaler.get_scale() == 64.0
    step(inputs()[0])
    assert not torch.equal(model.weight, before) and scaler.get_scale() == 64.0


def test_dynamic_scaler_refuses_sparse_gradients():
    model = nn.Embedding(6, 3, sparse=True)
    step = graph_of(
        lambda i: model(i).sum().backward(),
        torch.optim.SGD(model.parameters(), lr=0.5),
        torch.amp.GradScaler("cpu"),
        model=model,
    )
    with pytest.raises(RuntimeError, match="sparse gradient"):
        step(torch.tensor([1]))


# -- learning rates that are tensors --------------------------------------------------------
@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=torch.tensor(0.1), momentum=0.9),
    lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), foreach=False),
], ids=["sgd", "adam", "adamw"])  # fmt: skip
def test_learning_rate_as_a_tensor(make):
    follow(lambda: nn.Linear(4, 4), make)


@pytest.mark.parametrize("rates", [(0.1, 0.5, 0.01), (0.1, 0.1, 0.5)], ids=["at once", "after an equal one"])
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_a_replaced_learning_rate_as_a_tensor_is_read(make, rates):
    results = []
    for graph_mode in (True, False):
        torch.manual_seed(0)
        model, x = nn.Linear(4, 4), torch.ones(3, 4)
        optimizer = make(model.parameters(), lr=torch.tensor(0.2))

        def build(x, model=model):
            loss = model(x).square().mean()
            loss.backward()
            return loss

        step = graph_of(build, optimizer, model=model) if graph_mode else build
        for rate in (None, None, *rates):
            if rate is not None:
                optimizer.param_groups[0]["lr"] = torch.tensor(rate)
            optimizer.zero_grad()
            step(x)
            if not graph_mode:
                optimizer.step()
            optimizer.param_groups[0]["lr"].mul_(0.5)
        results.append(model.weight.detach().clone())
    assert torch.equal(*results)


@pytest.mark.parametrize("layers", [1, 3], ids=["update of one tensor", "update of lists"])
def test_a_learning_rate_that_becomes_a_tensor_makes_another_program(layers):
    """A list operator takes the rate of the first program as a number only."""
    results = []
    for graph_mode in (True, False):
        torch.manual_seed(0)
        model, x = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers))), torch.ones(3, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def build(x, model=model):
            loss = model(x).square().mean()
            loss.backward()
            return loss

        step = graph_of(build, optimizer, model=model) if graph_mode else build
        for rate in (0.1, 0.2, torch.tensor(0.05), torch.tensor(0.01), 0.3):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            step(x)
            if not graph_mode:
                optimizer.step()
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*results)
