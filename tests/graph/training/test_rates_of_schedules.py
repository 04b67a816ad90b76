"""build() reads the learning rate from the schedule: one program serves all steps."""

import math
import types
import warnings

import pytest
import torch
from graph_cases import graph_of
from torch import nn

import oneflow as flow

X = torch.linspace(-1, 1, 12).reshape(3, 4)

SCHEDULES = {
    "step": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
    "function": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (k + 1)),
    "chain": lambda optimizer: torch.optim.lr_scheduler.ChainedScheduler(
        [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]
    ),
    "sequence": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.ConstantLR(optimizer, 0.1, 2),
            torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
        ],
        [2],
    ),
}


def train(make_schedule, rate_of, as_graph):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = make_schedule(optimizer)

    def loss_of(x):
        loss = (model(x) * rate_of(schedule)).square().sum()
        loss.backward()
        return loss

    class Training(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer, lr_sch=schedule)
            self.config.set_backend("aten")

        def build(self, x):
            return loss_of(x)

    graph = Training() if as_graph else None
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        losses.append(graph(X) if as_graph else loss_of(X).detach())
        if not as_graph:
            optimizer.step()
            schedule.step()
    return losses, model.weight.detach(), graph


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(
    "rate_of", [lambda s: s.get_last_lr()[0], lambda s: s._last_lr[0]], ids=["get_last_lr()", "_last_lr"]
)
def test_one_program_serves_the_schedule(name, rate_of):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The epoch parameter", UserWarning)
        losses, weight, _ = train(SCHEDULES[name], rate_of, False)
        of_graph, weight_of_graph, graph = train(SCHEDULES[name], rate_of, True)
    assert all(map(torch.equal, losses, of_graph))
    assert torch.equal(weight, weight_of_graph)
    assert len(graph._engine.programs) == 1


def test_rate_that_math_needs_makes_a_program_for_each_value():
    def rate_of(schedule):
        return math.sqrt(schedule.get_last_lr()[0])

    losses, weight, _ = train(SCHEDULES["step"], rate_of, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_graph, weight_of_graph, _ = train(SCHEDULES["step"], rate_of, True)
    assert all(map(torch.equal, losses, of_graph))
    assert torch.equal(weight, weight_of_graph)


def test_rate_of_the_schedule_and_of_the_optimizer_that_become_different():
    """The user changes one of them alone."""
    optimizer = torch.optim.SGD(nn.Linear(4, 1).parameters(), lr=0.1)
    schedule = SCHEDULES["step"](optimizer)

    class Training(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.add_optimizer(optimizer, lr_sch=schedule)

        def build(self, x):
            loss = sum(p.sum() for p in optimizer.param_groups[0]["params"]) * 0
            loss.backward()
            return loss.detach() + schedule.get_last_lr()[0]

    graph = Training()
    assert graph(X).item() == pytest.approx(0.1)
    assert graph(X).item() == pytest.approx(0.05)
    optimizer.param_groups[0]["lr"] = 7.0
    assert graph(X).item() == pytest.approx(0.025)
    schedule._last_lr = [3.0]
    assert graph(X).item() == pytest.approx(3.0)


@pytest.mark.parametrize("library", [torch.optim, flow.optim])
def test_a_schedule_made_after_the_first_call_needs_no_program(library):
    weights = []
    for as_graph in (False, True):
        torch.manual_seed(0)
        layer = torch.nn.Linear(2, 1)
        optimizer = library.SGD(layer.parameters(), lr=1.0)

        def build(x, layer=layer):
            loss = layer(x).square().sum()
            loss.backward()
            return loss

        def eager(x, build=build, optimizer=optimizer):
            optimizer.zero_grad()
            build(x)
            optimizer.step()

        step = graph_of(build, optimizer, layer=layer) if as_graph else eager
        step(torch.ones(1, 2))
        schedule = library.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for _ in range(3):
            step(torch.ones(1, 2))
            with warnings.catch_warnings(action="error"):  # not in the wrong order
                schedule.step()
        weights.append(layer.weight.detach())
    assert torch.equal(*weights) and len(step._engine.programs) == 1


def test_another_step_below_a_schedule_needs_a_program():
    layer = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)

    def build(x):
        loss = layer(x).sum()
        loss.backward()
        return loss

    graph = graph_of(build, optimizer, layer=layer)
    graph(torch.ones(1, 2))

    def no_step(optimizer, closure=None):
        return None

    optimizer.step = types.MethodType(no_step, optimizer)
    torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    before = layer.weight.detach().clone()
    graph(torch.ones(1, 2))
    assert torch.equal(layer.weight, before)


def test_an_explanation_names_the_option_that_a_schedule_changes():
    layer = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)

    def build(x):
        loss = layer(x).sum()
        loss.backward()
        return loss

    graph = graph_of(build, optimizer, layer=layer)
    for _ in range(4):
        graph(torch.ones(1, 2))
        schedule.step()
    assert len(graph._engine.programs) == 2
    assert "option momentum of optimizer 0: changed" in graph.explain()
