"""Steps that change facts of parameters, and the state of their optimizer, themselves."""

import warnings

import pytest
import torch
from torch import nn

import oneflow as flow


def before(model, optimizer, x, count):
    model[0].requires_grad_(count % 2 == 0)


def by_assignment(model, optimizer, x, count):
    for parameter in model[0].parameters():
        parameter.requires_grad = count % 2 == 1


def once(model, optimizer, x, count):
    if count == 2:
        model[0].requires_grad_(False)


def for_a_while(model, optimizer, x, count):
    model[0].requires_grad_(False)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    model[0].requires_grad_(True)


def decayed_momentum(model, optimizer, x, count):
    for state in optimizer.state.values():
        if state.get("exp_avg") is not None:
            state["exp_avg"].mul_(0.5)


def number_in_state(model, optimizer, x, count):
    if optimizer.state:  # Adam creates its state where there is none
        optimizer.state[model[0].weight]["call"] = count


def hook_that_stays(model, optimizer, x, count):
    model[0].weight.register_hook(lambda gradient: gradient * 2)


def hook_for_a_while(model, optimizer, x, count):
    hook = model[0].weight.register_hook(lambda gradient: gradient * 2)
    model(x).square().mean().backward()
    hook.remove()


def data_of_another(model, optimizer, x, count):
    model[2].bias.data = model[0].bias.data[:1]


CHANGES = [
    before,
    by_assignment,
    once,
    for_a_while,
    decayed_momentum,
    number_in_state,
    hook_that_stays,
    hook_for_a_while,
    data_of_another,
]


def states(change, is_late, asks_for_text, compiled):
    torch.manual_seed(0)
    model, count, texts = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), 0, []
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)

    def step(x):
        nonlocal count
        if not is_late:
            change(model, optimizer, x, count)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if asks_for_text:
            texts.append(f"{loss.item():.4f}")
        optimizer.step()
        if is_late:
            change(model, optimizer, x, count)
        count += 1
        return loss.detach()

    run = flow.compile_step(step, backend="aten") if compiled else step
    data, seen = torch.Generator().manual_seed(1), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a call may run in eager mode
        for _ in range(5):
            loss = run(torch.randn(4, 3, generator=data)).item()
            state = [
                (p.tolist(), p.requires_grad, None if p.grad is None else p.grad.tolist())
                for p in model.parameters()
            ]
            state_of_optimizer = [
                {
                    name: value.tolist() if isinstance(value, torch.Tensor) else value
                    for name, value in s.items()
                }
                for s in optimizer.state.values()
            ]
            seen.append((loss, state, state_of_optimizer, list(texts)))
    return seen


@pytest.mark.eager_calls
@pytest.mark.parametrize("asks_for_text", [False, True], ids=["program", "text"])
@pytest.mark.parametrize("is_late", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_step_that_changes_its_parameters_is_eager_bit_for_bit(change, is_late, asks_for_text):
    expected = states(change, is_late, asks_for_text, compiled=False)
    assert states(change, is_late, asks_for_text, compiled=True) == expected
