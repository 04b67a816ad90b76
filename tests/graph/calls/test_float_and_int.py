"""float() and int() of tensors and numbers are numbers of the program."""

import warnings

import pytest
import torch
from torch import nn

import oneflow as flow


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.left, self.right = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        return (self.left if float(hidden.mean()) > 0 else self.right)(hidden)


def norm_of_gradients(model, loss, out, log):
    log.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.5)))


def loss_and_accuracy(model, loss, out, log):
    log.append((float(loss), float((out.argmax(1) == 0).float().mean())))


def count_of_right_answers(model, loss, out, log):
    log.append(int((out.argmax(1) == 0).sum()))


def whole_part_of_a_float(model, loss, out, log):
    log.append(int(loss * 10) + int(-loss * 10))


def float_of_an_integer(model, loss, out, log):
    log.append(float(out.argmax(1).sum()) / 2)


def number_twice(model, loss, out, log):
    log.append(float(float(loss.item())) + int(int(out.argmax(1).sum().item())))


def one_element(model, loss, out, log):
    log.append(float(loss.reshape(1, 1)))


def boolean(model, loss, out, log):
    log.append(float((loss > 1.0).detach()) + int((loss > 1.0).detach()))


def text(model, loss, out, log):
    log.append(f"{float(loss):.3f}")


def rescaled(model, loss, out, log):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.0 - 0.01 * min(float(loss), 1.0))


STEPS = [
    norm_of_gradients,
    loss_and_accuracy,
    count_of_right_answers,
    whole_part_of_a_float,
    float_of_an_integer,
    number_twice,
    one_element,
    boolean,
    text,
    rescaled,
]


def results(look, compiled, calls=6):
    torch.manual_seed(0)
    model, log = Experts(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, y):
        optimizer.zero_grad()
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        look(model, loss, out, log)
        optimizer.step()
        return float(loss)

    run = flow.compile_step(step, backend="aten") if compiled else step
    data = torch.Generator().manual_seed(1)
    losses = []
    for k in range(calls):
        x, y = torch.randn(4, 3, generator=data) + (k % 3 - 1), torch.randint(0, 2, (4,), generator=data)
        losses.append(run(x, y))
    return losses, log, [p.tolist() for p in model.parameters()], run


@pytest.mark.parametrize("look", STEPS, ids=lambda look: look.__name__)
def test_a_step_has_the_numbers_of_eager_mode(look):
    *expected, _ = results(look, compiled=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a call in eager mode warns
        *found, run = results(look, compiled=True)
    assert found == expected
    assert [type(number) for number in found[0]] == [float] * 6
    assert len(run.graph._engine.programs) <= 4  # one for each expert, and one that creates state


@pytest.mark.eager_calls
def test_an_int_of_what_is_no_number_raises_as_in_eager_mode():
    def step(x):
        return int(x.mean().log())

    run = flow.compile_step(step, backend="aten")
    assert run(torch.full((2,), 8.0)) == 2
    with pytest.raises(ValueError, match="NaN"):
        run(torch.full((2,), -1.0))
    assert run(torch.full((2,), 8.0)) == 2


@pytest.mark.eager_calls
def test_float_of_several_elements_raises_as_in_eager_mode():
    def step(x):
        return float(x)

    run = flow.compile_step(step, backend="aten")
    with pytest.raises((RuntimeError, ValueError, TypeError)) as expected:
        step(torch.ones(2))
    with pytest.raises(expected.type, match="Tensor with 2 elements|converted"):
        run(torch.ones(2))


@pytest.mark.eager_calls
def test_own_classes_keep_their_float():
    class Meter:
        total = 0.0

        def __float__(self):
            return self.total

    meter = Meter()

    def step(x):
        meter.total += x.sum().item()
        return x * 2, float(meter)

    run = flow.compile_step(step, backend="aten")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # __float__ must return a float, so the call may run in eager mode
        assert [run(torch.ones(2))[1] for _ in range(3)] == [2.0, 4.0, 6.0]
