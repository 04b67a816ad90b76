"""What a compiled step assigns to options of its optimizer and to parameters is there as in eager mode."""

import pytest
import torch
from torch import nn

import oneflow as flow

pytestmark = pytest.mark.eager_calls


def rate_of_a_function(group, i):
    group["lr"] = 1 / (i + 1)


def constant_rate(group, i):
    group["lr"] = 0.25


def decayed_rate(group, i):
    group["lr"] *= 0.9


def rate_by_update(group, i):
    group.update(lr=0.25)


def decayed_weights(group, i):
    group["weight_decay"] = 0.1


def weights_and_options(change, is_before, is_compiled):
    """Train one weight; return the weight and the options after each step."""
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([weight], lr=0.5)

    def step(x, i):
        if is_before:
            change(optimizer.param_groups[0], i)
        loss = (weight * x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not is_before:
            change(optimizer.param_groups[0], i)

    if is_compiled:
        step = flow.compile_step(step, backend="aten")
    history = []
    for i in range(3):
        step(torch.ones(1), i)
        options = {name: option for name, option in optimizer.param_groups[0].items() if name != "params"}
        history.append((weight.item(), options))
    return history


@pytest.mark.parametrize(
    "change, is_before",
    [
        (rate_of_a_function, True),
        (constant_rate, True),
        (decayed_rate, False),
        (rate_by_update, False),
        (decayed_weights, False),
    ],
)
def test_an_option_that_the_step_sets(change, is_before):
    expected = weights_and_options(change, is_before, is_compiled=False)
    assert weights_and_options(change, is_before, is_compiled=True) == expected


def test_a_parameter_that_the_step_makes_anew():
    def losses(is_compiled):
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.bias = nn.Parameter(torch.zeros(1))
            return loss.item()

        if is_compiled:
            step = flow.compile_step(step, backend="aten")
        return [(step(torch.ones(3, 2)), model.bias.item()) for _ in range(3)]

    assert losses(is_compiled=True) == losses(is_compiled=False)
