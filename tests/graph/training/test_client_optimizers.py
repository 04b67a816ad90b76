"""nn.Graph follows the state of optimizers of other packages, or refuses it with its name."""

from collections import deque

import pytest
import torch
from graph_cases import graph_of
from test_client_models import inputs, one_loss, same_as_eager
from torch import nn
from torch.optim import Optimizer

import oneflow as flow


class Plain(Optimizer):
    """A step of `update(self, group, p, state)` for each parameter; `begin(self, group)` before."""

    def __init__(self, params, lr=0.1, **more):
        super().__init__(params, dict(lr=lr, **more))

    def begin(self, group):
        pass

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            self.begin(group)
            for p in group["params"]:
                if p.grad is not None:
                    self.update(group, p, self.state[p])


class CountsInGroup(Plain):
    def begin(self, group):
        group["step"] = group.get("step", 0) + 1
        group["seen"] = group["seen"] * 0.5 + group["lr"]  # a number that starts as an option

    def update(self, group, p, state):
        p.sub_(p.grad, alpha=group["lr"] / (1 - 0.9 ** group["step"]) + group["seen"])


class ScheduleFree(Plain):
    def begin(self, group):
        group["now"] = group["lr"] * (group["k"] + 1) / 3 if group["k"] < 2 else group["lr"]
        group["most"] = max(group["now"], group["most"])
        group["total"] += group["most"] ** 2

    def update(self, group, p, state):
        if "z" not in state:
            state["z"] = p.clone()
        p.lerp_(state["z"], 1 / (group["k"] + 1))
        state["z"].sub_(p.grad, alpha=group["now"] / (1 + group["total"]))

    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            group["k"] += 1


class Aggregated(Plain):
    """Several momenta in a dict and a list."""

    def update(self, group, p, state):
        if "momenta" not in state:
            state["momenta"] = {beta: torch.zeros_like(p) for beta in (0.0, 0.9)}
            state["last"] = [torch.zeros_like(p), torch.zeros_like(p)]
            state["shape"] = p.shape
        for beta, momentum in state["momenta"].items():
            momentum.mul_(beta).add_(p.grad)
            p.sub_(momentum, alpha=group["lr"] / 2)
        p.add_(state["last"][0].view(state["shape"]), alpha=0.01)
        state["last"][0].copy_(p.grad)


class Replaces(Plain):
    """State bound to new tensors, and two that change places."""

    def update(self, group, p, state):
        if not state:
            state.update(previous=torch.zeros_like(p), a=torch.zeros_like(p), b=torch.ones_like(p))
        p.sub_((p.grad - state["previous"]) + state["a"] * 0.1, alpha=group["lr"])
        state["previous"] = p.grad.clone()
        state["a"], state["b"] = state["b"], state["a"]


class NumbersOfLists(Plain):
    def update(self, group, p, state):
        state["lr_average"] = state.get("lr_average", 0.0) * 0.9 + 0.1 * group["lr"]
        factors = torch.tensor([state["lr_average"], 2.0])
        p.sub_(p.grad * factors[0] * factors[1])


class DeepCopied(Plain):
    def update(self, group, p, state):
        import copy

        if "slow" not in state:
            state["slow"] = copy.deepcopy(p.data)
        p.sub_(p.grad, alpha=group["lr"])
        state["slow"].lerp_(p, 0.5)
        p.copy_(state["slow"])


class AnotherFirstStep(Plain):
    """The first step only begins the state (ADOPT)."""

    def update(self, group, p, state):
        first = len(state) == 0
        if first:
            state["square"] = torch.zeros_like(p)
        else:
            p.sub_(p.grad / state["square"].sqrt().clamp(min=0.1), alpha=group["lr"])
        state["square"].mul_(0.9).addcmul_(p.grad, p.grad)


class TensorInGroup(Plain):
    def begin(self, group):
        if "step" not in group:
            group["step"] = torch.zeros(())
        group["step"].add_(1)

    def update(self, group, p, state):
        p.sub_(p.grad, alpha=group["lr"] / (1 - 0.9 ** group["step"].item()))


@pytest.mark.parametrize(
    "make",
    [
        AnotherFirstStep,
        TensorInGroup,
        lambda p: CountsInGroup(p, seen=0.0),
        lambda p: ScheduleFree(p, k=0, most=-1.0, total=0.0),
        Aggregated,
        Replaces,
        NumbersOfLists,
        DeepCopied,
    ],
    ids=[
        "another first step",
        "a tensor in param_groups",
        "counts in param_groups",
        "schedule free",
        "state in dicts and lists",
        "replaces its state",
        "numbers in lists",
        "a deep copy",
    ],
)
def test_optimizers_of_clients_are_followed(make):
    same_as_eager(one_loss, lambda: nn.Linear(4, 2), inputs(3, 4, count=6), optimizer=make)


def test_numbers_of_options_are_the_optimizers_own():
    layer = nn.Linear(4, 2)
    optimizer = CountsInGroup(layer.parameters(), seen=0.0)
    step = graph_of(one_loss(layer), optimizer, layer=layer)
    for x in inputs(3, 4, count=4):
        step(x)
    assert (
        optimizer.param_groups[0]["step"] == 4
        and type(optimizer.param_groups[0]["step"]) is int
        and len(step._engine.programs) == 1
    )
    assert optimizer.state_dict()["param_groups"][0]["seen"] == 0.1 * 0.125 + 0.1 * 0.25 + 0.1 * 0.5 + 0.1


@pytest.mark.parametrize("make", [AnotherFirstStep, TensorInGroup])
def test_a_first_step_that_overflows_is_repeated(make):
    def trained(in_graph):
        torch.manual_seed(0)
        layer = nn.Linear(4, 2)
        optimizer, build = make(layer.parameters()), one_loss(layer)
        if in_graph:
            graph = graph_of(build, optimizer, layer=layer)
            graph.set_grad_scaler(flow.amp.GradScaler(init_scale=2.0**10, growth_interval=100))
            graph(torch.full((3, 4), torch.inf))
        for x in inputs(3, 4, count=3):
            graph(x) if in_graph else (optimizer.zero_grad(), build(x), optimizer.step())
        return layer.weight

    assert torch.equal(trained(True), trained(False))


def test_a_first_step_that_makes_state_is_not_what_is_saved(tmp_path):
    layer = nn.Linear(4, 2)
    step = graph_of(one_loss(layer), AnotherFirstStep(layer.parameters()), layer=layer)
    first, second, third = inputs(3, 4, count=3)
    step(first)
    with pytest.raises(RuntimeError, match="once more"):
        step.save(tmp_path / "first")
    step(second)
    step.save(tmp_path / "second")
    flow.load_graph(tmp_path / "second")(third)
    assert torch.equal(flow.load_graph(tmp_path / "second")(third), step(third))


class Queue(Plain):
    def update(self, group, p, state):
        state.setdefault("queue", deque(maxlen=2)).append(p.grad.clone())
        p.sub_(state["queue"][0], alpha=group["lr"])


class Outside(Plain):
    held = None

    def update(self, group, p, state):
        self.held = {**(self.held or {}), id(p): p.grad * 2}
        p.sub_(self.held[id(p)], alpha=group["lr"])


class Flag(Plain):
    def update(self, group, p, state):
        state["odd"] = not state.get("odd", False)
        p.sub_(p.grad, alpha=group["lr"] * (1 + state["odd"]))


class Attribute(Plain):
    count = 0

    def begin(self, group):
        self.count += 1

    def update(self, group, p, state):
        p.sub_(p.grad, alpha=group["lr"] / self.count)


class Nested(Plain):
    def update(self, group, p, state):
        state.setdefault("counts", {"n": 0})["n"] += 1
        p.sub_(p.grad, alpha=group["lr"] / state["counts"]["n"])


@pytest.mark.parametrize(
    "kind, place",
    [
        (Queue, "'queue', a deque"),
        (Outside, "'held', a dict"),
        (Flag, "'odd' from True to False"),
        (Attribute, "'count'"),
        (Nested, "'counts'"),
    ],
)
def test_optimizers_that_no_program_holds_are_refused_by_name(kind, place):
    layer = nn.Linear(4, 2)
    optimizer = kind(layer.parameters())
    if kind is Attribute:
        optimizer.count = 0
    step, x = graph_of(one_loss(layer), optimizer, layer=layer), torch.ones(3, 4)
    with pytest.raises(RuntimeError, match=place):
        for _ in range(3):
            step(x)
