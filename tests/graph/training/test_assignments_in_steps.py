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


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.kept = torch.zeros(2)
        self.register_buffer("mean", torch.zeros(2))
        self.pair = (torch.zeros(2), torch.ones(2))
        self.first = None
        self.entries = {"a": torch.full((2,), 3.0), "b": torch.full((2,), 4.0)}


def keep_argument(m, x):
    m.kept = m.mean = x
    return x * 2


def carry_attribute(m, x):
    m.kept = m.kept * 0.5 + x
    return m.kept * 1


def carry_buffer_and_write(m, x):
    m.mean = m.mean * 0.5 + x
    m.mean.mul_(2)
    return x * 2


def swap_pair(m, x):
    m.pair = (m.pair[1] + x, m.pair[0] * 2)
    return x * 2


def swap_names(m, x):
    m.kept, m.mean = m.mean, m.kept + x
    return x * 2


def swap_entries(m, x):
    m.entries["a"], m.entries["b"] = m.entries["b"], m.entries["a"]
    return x * m.entries["a"]


def rotate(m, x):
    m.kept, m.mean, m.pair = m.mean, m.pair[0], (m.kept, m.pair[1])
    return x + m.kept


def two_names(m, x):
    m.kept = m.mean = x * 2
    m.kept.add_(1)
    return x * 2


def first_value(m, x):
    m.first = x * 1 if m.first is None else m.first * 0.5 + x
    return x * 2


def reset(m, x):
    m.kept = torch.ones(2)
    return x * m.kept


def fill_cache(m, x):
    if m.first is None:
        m.first = torch.ones(2, 2).tril()
    return x @ m.first


def keep_result(m, x):
    before, m.kept = m.kept, x * 3
    return before.sum(), m.kept


def states_of_model(assign, is_compiled):
    """Return what four calls leave in the model and in tensors that the caller holds, and which are one
    object.
    """
    m, states, older = Model(), [], []
    step = flow.compile_step(assign, backend="aten") if is_compiled else assign
    for i in range(4):
        x = torch.full((2,), i + 1.0)
        older += [m.kept, m.mean, *m.pair, *m.entries.values()]
        result = step(m, x)
        x.add_(10)  # the caller's buffer for the next batch
        m.kept.add_(1)
        results = [result] if torch.is_tensor(result) else result
        tensors = [m.kept, m.mean, *m.pair, *m.entries.values(), x, *results]
        tensors += [m.first] if m.first is not None else []
        first = {id(t): index for index, t in reversed([*enumerate([*tensors, *older])])}
        states.append([t.tolist() for t in (*tensors, *older)] + [first[id(t)] for t in (*tensors, *older)])
    return states


@pytest.mark.parametrize(
    "assign",
    [
        keep_argument,
        carry_attribute,
        carry_buffer_and_write,
        swap_pair,
        swap_names,
        swap_entries,
        rotate,
        two_names,
        first_value,
        reset,
        fill_cache,
        keep_result,
    ],
    ids=lambda f: f.__name__,
)
def test_an_assignment_to_a_module_binds_the_new_tensor(assign, recwarn):
    """The old tensor, which the caller may hold, keeps its values."""
    assert states_of_model(assign, True) == states_of_model(assign, False)
    assert not recwarn.list


@pytest.mark.parametrize(
    "make", [torch.ones, lambda n: torch.ones(n, requires_grad=True) * 2], ids=["leaf", "history"]
)
def test_a_returned_argument_is_the_callers_tensor(make):
    m = Model()

    def step(x):
        m.kept = x
        return x, m.weight

    x = make(2).requires_grad_()
    compiled = flow.compile_step(step, backend="aten")
    for _ in range(2):
        result, weight = compiled(x)
        assert result is x and weight is m.weight and m.kept is x


def test_a_carried_tensor_costs_one_program():
    m, x = Model(), torch.ones(2)
    step = flow.compile_step(carry_buffer_and_write, backend="aten")
    for _ in range(5):
        step(m, x)
    assert len(step.graph._engine.programs) == 1
