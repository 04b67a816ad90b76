"""x[i] with a 0-d integer tensor i is a view in eager mode: what is written to it, or to x, shows in both."""

import pytest
import torch

import oneflow as flow

pytestmark = pytest.mark.eager_calls


def write(w, i, x):
    w[i].add_(1.0)


def random_write(w, i, x):
    w[i].normal_(0, 0.1)


def write_of_a_column(w, i, x):
    w[:, i].sub_(2.0)


def write_of_an_element(w, i, x):
    w[i][i].mul_(3.0)


def write_of_an_element_at_once(w, i, x):
    w[i, i].mul_(3.0)


def write_through_views(w, i, x):
    w[i].view(1, 3).t().copy_(x[:3, None])


def write_of_a_counter(w, i, x):
    w[i] += x[0]


def two_counters(w, i, x):
    w[i] += x[0]
    w[:, i] *= 2.0
    w[i, i] -= 1


def counter_that_is_stored_elsewhere(w, i, x):
    row = w[i]
    row += 1.0
    w[1 - i] = row


def counter_that_is_read_before_it_is_stored(w, i, x):
    row = w[i]
    row += 1.0
    total = w.sum()
    w[i] = row
    return total


def swap(w, i, x):
    w[i], w[1 - i] = w[1 - i], w[i]


def assignment_of_a_kept_row(w, i, x):
    row = w[1 - i]
    w[i] = row
    w[1 - i] = 7.0
    return row * 1


def assignment_of_a_part_of_the_row(w, i, x):
    row = w[i]
    w[i] = row[0]
    return row * 1


def copy_into(w, i, x):
    w[i].copy_(w[1 - i])


def out_of_an_operator(w, i, x):
    torch.add(x[:3], 1.0, out=w[i])


def read_after_a_write_to_the_base(w, i, x):
    row = w[i]
    w.add_(1.0)
    return row * 2


def read_after_an_assignment(w, i, x):
    row = w[i]
    w[0] = 5.0
    return row * 2


def read_before_a_write(w, i, x):
    row = w[i] * 2
    w.add_(1.0)
    return row


def of_a_computed_tensor(w, i, x):
    y = x.reshape(-1, 3) * 2
    y[i].zero_()
    return y


def negative(w, i, x):
    w[-1 - i].add_(1.0)


def as_data(w, i, x):
    w.data[i].fill_(7.0)


STEPS = [
    value
    for value in list(globals().values())
    if callable(value) and getattr(value, "__module__", "") == __name__
]


@pytest.mark.parametrize("make", [torch.zeros, lambda *shape: torch.nn.Parameter(torch.zeros(shape))])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_row_at_a_tensor_is_a_view(step, make):
    states = []
    for compiled in (lambda f: f, lambda f: flow.compile_step(f, backend="aten")):
        w = make(3, 3)
        w.data += torch.arange(9.0).view(3, 3)

        def run(x):
            with torch.no_grad():
                return step(w, x[:2].argmax(), x)

        call, values = compiled(run), []
        for k in range(5):
            torch.manual_seed(k)
            out = call(torch.randn(6))
            values += [w.tolist(), None if out is None else out.tolist()]
        states.append(values)
    assert states[0] == states[1]
    assert len(call.graph._engine.programs) <= 2, "a program serves each index"


def test_gradients_pass_a_row_that_is_written():
    w, grads = torch.randn(3, 3), []
    for compiled in (lambda f: f, lambda f: flow.compile_step(f, backend="aten")):
        p = torch.nn.Parameter(w.clone())

        def run(x):
            y = p * 2
            y[x.argmax()].mul_(3.0)
            y.sum().backward()
            return y.detach()

        call = compiled(run)
        for k in range(3):
            torch.manual_seed(k)
            call(torch.randn(3))
        grads.append(p.grad.tolist())
    assert grads[0] == grads[1]


def test_a_row_of_an_expanded_sum_is_written_in_all_places():
    """The gradient of a write by index, which the capture used, would refuse the expanded tensor."""
    w, grads = torch.randn(4, 4), []

    def make():
        p = torch.nn.Parameter(w.clone())

        def run(x):
            y = p.sum(0, keepdim=True).expand(4, 4)
            y[x.argmax()] += x
            y.square().sum().backward()
            return y.detach()

        return run, p

    for compiled in (lambda f: f, lambda f: flow.compile_step(f, backend="aten", strict=True)):
        run, p = make()
        call = compiled(run)
        grads.append([call(torch.tensor([0.0, k, 1.0, 2.0])).tolist() for k in range(4)] + [p.grad.tolist()])
    assert grads[0] == grads[1]


def test_a_row_that_is_returned_shows_the_update():
    values = []
    for compiled in (lambda f: f, lambda f: flow.compile_step(f, backend="aten")):
        w = torch.nn.Parameter(torch.arange(6.0).view(3, 2))
        optimizer = torch.optim.SGD([w], lr=0.1)

        def run(x):
            row = w[x.argmax()]
            optimizer.zero_grad()
            row.square().sum().backward()
            optimizer.step()
            return row.detach()

        call = compiled(run)
        values.append([call(torch.tensor([0.0, k, 1.0])).tolist() for k in range(4)] + [w.tolist()])
    assert values[0] == values[1]
