"""Numbers among the arguments of a compiled step that change from call to call are inputs of one program."""

import math
import threading

import pytest
import torch
from torch import nn

import oneflow as flow

pytestmark = pytest.mark.eager_calls


class Model:
    def __init__(self):
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), 0.1)

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def epochs(w):
    def step(x, epoch, total=10):
        return w.update(w.layer(x).square().mean() * (1 + epoch / total)), epoch

    return step, [((i,), {}) for i in range(8)]


def names(w):
    def step(x, *, weight, warmup=4, n=0):
        scale = min(1.0, (n + 1) / warmup) * weight
        return w.update(w.layer(x).square().mean() * scale).item(), scale

    return step, [((), {"weight": 0.9**i, "n": i}) for i in range(9)]


def special_values(w):
    def step(x, value):
        return w.layer(x).detach() * value, value

    return step, [((v,), {}) for v in (1.0, -0.0, math.inf, 0.0, 1e-320, math.nan, 2.0**70, -1.0)]


def rates(w):
    def step(x, rate):
        loss = w.layer(x).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in w.layer.parameters():
                p.sub_(p.grad, alpha=rate)
                p.grad = None
        return loss.detach()

    return step, [((0.1 / (1 + i),), {}) for i in range(7)]


def with_numbers_of_tensors(w):
    def step(x, weight):
        out = w.layer(x)
        hits = (out.detach().argmax(1) == 1).sum()
        loss = w.update(out.square().mean() * weight)
        right = weight * hits.item() + (1 - weight) * hits.item()
        n = hits.item()
        mixed = n + weight, n - weight, n * weight, n / weight, weight - n, loss.item() * n, n * loss.item()
        return right, mixed, loss.item() * weight * n / len(x), (n + weight) * n, (n > weight) + 0

    return step, [((0.3 / (1 + i),), {}) for i in range(8)]


def other_types(w):
    def step(x, value):
        return w.update(w.layer(x).square().mean() * (value or 1)), value

    return step, [((v,), {}) for v in (1, 2, 2.5, True, 3, None, 4, "", 5, 6.0)]


def branches(w):
    def step(x, n):
        loss = w.layer(x).square().mean()
        if n >= 3:
            loss = loss * 2
        return w.update(loss)

    return step, [((i,), {}) for i in range(7)]


def sizes_and_indices(w):
    def step(x, n):
        return w.update(w.layer(x)[n % 3].square().sum()), list(range(n % 2)), x.new_zeros(n % 2)

    return step, [((i,), {}) for i in range(7)]


def keys_and_texts(w):
    seen = {}

    def step(x, n):
        seen[n] = n
        loss = w.update(w.layer(x).square().sum())
        return loss, f"{n:03d}", dict(seen)

    return step, [((i,), {}) for i in range(7)]


def rest(w):
    def step(x, *numbers, **named):
        return w.update(w.layer(x).square().mean() * sum(numbers) + sum(named.values()))

    return step, [((i, 2, i * 0.5), {"a": i, "b": 1}) for i in range(7)]


def run(make, compile_step):
    w = Model()
    step, calls = make(w)
    step = compile_step(step)
    generator = torch.Generator().manual_seed(1)
    seen = [step(torch.randn(3, 4, generator=generator), *args, **kwargs) for args, kwargs in calls]
    return repr(seen) + repr([p.tolist() for p in w.layer.parameters()]), step


@pytest.mark.parametrize("make", [epochs, names, special_values, rates, rest, with_numbers_of_tensors])
def test_one_program_serves_all_numbers(make):
    expected, _ = run(make, lambda step: step)
    found, compiled = run(make, lambda step: flow.compile_step(step, backend="aten", strict=True))
    assert found == expected
    assert len(compiled.graph._engine.programs) <= 3, "one of the first call, and one of other types"


@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
@pytest.mark.parametrize("make", [other_types, branches, sizes_and_indices, keys_and_texts])
def test_a_number_that_decides_has_its_value(make):
    expected, _ = run(make, lambda step: step)
    found, _ = run(make, lambda step: flow.compile_step(step, backend="aten"))
    assert found == expected


def test_threads_have_their_own_numbers():
    layer = nn.Linear(4, 4).requires_grad_(False)
    step = flow.compile_step(lambda x, factor: layer(x) * factor, backend="aten")
    x = torch.ones(2, 4)
    for factor in (1.0, 2.0, 3.0):
        step(x, factor)
    wrong = []

    def work(factor):
        expected = layer(x) * factor
        wrong.extend(factor for _ in range(200) if not torch.equal(step(x, factor), expected))

    threads = [threading.Thread(target=work, args=(float(n),)) for n in range(4, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
