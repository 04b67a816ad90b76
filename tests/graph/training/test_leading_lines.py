"""Steps whose first lines run in Python before the program: NumPy's random numbers, clocks, prints."""

import datetime
import math
import random
import time
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from steps_in_parts import World, assert_follows_eager
from torch import nn

import oneflow as flow
from oneflow._graph.errors import UsageError

pytestmark = pytest.mark.eager_calls


def mixed(x, y):
    weight = np.random.beta(0.4, 0.4)
    order = torch.randperm(x.size(0))
    return weight * x + (1 - weight) * x[order], y, y[order], weight


def mixes(w):
    def step(x, y):
        inputs, first, second, weight = mixed(x, y)
        out = w.model(inputs)
        loss = weight * F.cross_entropy(out, first) + (1 - weight) * F.cross_entropy(out, second)
        w.update(loss)
        return loss.item(), weight

    return step


def flips_at_random(w):
    def step(x, y):
        x = x * 2
        if random.random() < 0.5:
            x = x.flip(1)
        w.update(w.loss(x, y))
        return x

    return step


def measures_time(w):
    def step(x, y):
        start = time.perf_counter()
        loss = w.loss(x, y)
        w.update(loss)
        elapsed = time.perf_counter() - start
        print(f"{loss.item():.3f}", elapsed > 0)
        return loss

    return step


def prints_first(w):
    def step(x, y):
        print("batch", tuple(x.shape), f"{x.mean().item():.3f}")
        w.update(w.loss(x, y))

    return step


def augments_with_numpy(w):
    def step(x, y):
        noise = np.random.randn(*x.shape).astype(np.float32)
        x = x + torch.from_numpy(noise)
        w.update(w.loss(x, y))
        return x.sum()

    return step


def takes_rows_by_numpy(w):
    def step(x, y):
        rows = np.random.choice(len(x), 8, replace=False)
        x = x[rows]
        y = y[torch.as_tensor(rows)]
        w.update(w.loss(x, y))
        return rows

    return step


def begins_with_empty_containers(w):
    def step(x, y, *rest, scale=2.0, **named):
        losses, n = [], 0
        text = ""
        today = datetime.datetime.now()
        named["n"] = 1
        for _ in range(2):
            loss = w.loss(x * scale, y)
            w.update(loss)
            losses.append(loss.item())
            n += 1
        return losses, n, text, rest, sorted(named), (datetime.datetime.now() - today).days

    return step


def returns_at_random(w):
    def step(x, y):
        if random.random() < 0.4:
            return "skipped"
        import math as m

        w.update(w.loss(x, y))
        return m.sqrt(4)

    return step


def binds_at_times(w):
    def step(x, y):
        if random.random() < 0.3:
            extra = 0.5
        w.update(w.loss(x, y))
        try:
            return extra
        except NameError as error:
            return type(error).__name__

    return step


def has_two_leads_and_a_tail(w):
    w.kept["n"] = 0

    def step(x, y):
        w.kept["n"] += 1
        factor = random.random()
        x = x * factor
        offset = np.random.rand()
        count = w.kept["n"]
        loss = w.loss(x + offset, y)
        w.update(loss)
        print(f"{loss.item():.3f} {factor:.3f} {offset:.3f} {count}")
        return x, count

    return step


def changes_what_the_caller_sees(w):
    w.kept["seen"] = []

    def step(x, y):
        w.kept["seen"].append(random.randint(0, 9))
        x.add_(w.kept["seen"][-1])
        w.update(w.loss(x, y))
        return x

    return step


def counts_in_a_nonlocal_variable(w):
    count = 0

    def step(x, y):
        nonlocal count
        count += random.choice([1, 2])
        w.update(w.loss(x, y) * 2)
        count += 1
        return count

    return step


def branches_behind_the_first_lines(w):
    def step(x, y):
        weight = random.random()
        loss = w.loss(x, y)
        if not math.isfinite(loss.item()):
            return None
        if loss.item() > 1.1:
            loss = loss * weight
        w.update(loss)
        return loss

    return step


def raises_in_the_first_lines(w):
    def step(x, y):
        if (weight := random.random()) < 0.5:
            raise ValueError(f"weight {weight:.3f}")
        w.update(w.loss(x, y) * weight)
        return weight

    def caught(x, y):
        try:
            return caught.step(x, y)
        except ValueError as error:
            return str(error)

    step.wrapped = caught
    return step


def loops_until_an_error_is_small(w):
    def step(x, y):
        a = x.abs().mean() + 1
        root, n = a, 0
        while (root * root - a).abs().item() > 1e-4:
            root, n = (root + a / root) / 2, n + 1
        w.update(w.loss(x * root, y))
        return n

    return step


def loops_too_often(w):
    def step(x, y):
        n, value = 0, x.abs().sum()
        with torch.no_grad():
            while value.item() > 1e-3:
                value, n = value * 0.7, n + 1
        w.optimizer.zero_grad()
        w.loss(x, y).backward()
        w.optimizer.step()
        return value, n

    return step


def sets_the_rate_first(w):
    w.kept["n"] = 0

    def set_rate(rate):
        for group in w.optimizer.param_groups:
            group["lr"] = rate

    def step(x, y):
        w.optimizer.zero_grad()
        set_rate(0.1 / (1 + w.kept["n"]))
        loss = w.loss(x, y)
        loss.backward()
        w.optimizer.step()
        w.kept["n"] += 1
        return loss, w.optimizer.param_groups[0]["lr"]

    return step


def updates_a_group(w):
    def step(x, y):
        w.optimizer.param_groups[0].update(lr=0.1 * float(y[0] + 1), weight_decay=0.01)
        w.update(w.loss(x, y))

    return step


LEADS = [
    mixes, flips_at_random, measures_time, prints_first, augments_with_numpy, takes_rows_by_numpy,
    begins_with_empty_containers, returns_at_random, has_two_leads_and_a_tail, changes_what_the_caller_sees,
    counts_in_a_nonlocal_variable, branches_behind_the_first_lines, raises_in_the_first_lines,
    loops_until_an_error_is_small, loops_too_often, sets_the_rate_first, updates_a_group,
]  # fmt: skip


@pytest.mark.parametrize("make", LEADS)
def test_the_first_lines_run_before_the_program(make, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = assert_follows_eager(make, capsys)
    assert not graph._engine.eager_calls.has_begun and graph._engine.programs
    assert "run in Python before each run of the program" in graph.explain()


@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
def test_a_variable_that_only_some_calls_bind(capsys):
    assert_follows_eager(binds_at_times, capsys)


def samples_behind_the_model(w):
    def step(x, y):
        out = w.model(x)
        noise = np.random.rand()
        w.update(F.cross_entropy(out * noise, y))
        return noise

    return step


def samples_in_the_statement_of_the_model(w):
    def step(x, y):
        out = w.model(x) * np.random.rand()
        w.update(F.cross_entropy(out, y))

    return step


def defines_a_function_of_later_variables(w):
    def step(x, y):
        weight = random.random()

        def loss():
            return w.loss(x, y) * factor * weight

        print("factor")
        factor = 2.0
        w.update(loss())

    return step


@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
@pytest.mark.parametrize(
    "make",
    [samples_behind_the_model, samples_in_the_statement_of_the_model, defines_a_function_of_later_variables],
)
def test_a_history_or_a_shared_variable_keeps_a_step_whole(make, capsys):
    graph = assert_follows_eager(make, capsys)
    assert graph._engine.eager_calls.has_begun and not graph._engine.programs


def test_the_first_lines_are_not_run_twice_in_the_call_that_finds_them(capsys):
    w = World()
    seen = []

    def step(x, y):
        seen.append(random.random())
        w.update(w.loss(x, y))

    compiled = flow.compile_step(step, backend="aten")
    for count in range(1, 4):
        compiled(torch.ones(4, 8), torch.arange(4) % 3)
        assert len(seen) == count


class Trainer(World):
    def step(self, x, y, factor=1):
        noise = np.random.rand()
        x = x * noise
        loss = self.loss(x * factor, y)
        self.update(loss)
        return loss, noise, factor


def test_a_method_and_objects_among_the_arguments():
    def calls(step, *objects):
        generator = torch.Generator().manual_seed(1)
        x, y = torch.randn(6, 16, 8, generator=generator), torch.randint(0, 3, (6, 16), generator=generator)
        return [[float(v) for v in step(*objects, x[i], y[i])] for i in range(6)]

    def step(model, x, optimizer, y, weight=1):
        noise = np.random.rand()
        loss = F.cross_entropy(model(x * noise), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, noise

    expected, found = Trainer(), Trainer()
    expected_losses = calls(expected.step)
    Trainer()  # the seeds
    compiled = flow.compile_step(found.step, backend="aten")
    assert calls(compiled) == expected_losses and not compiled.graph._engine.eager_calls.has_begun

    expected, found = World(), World()
    losses = calls(lambda x, y: step(expected.model, x, expected.optimizer, y))
    World()
    compiled = flow.compile_step(step, backend="aten")
    assert calls(lambda x, y: compiled(found.model, x, found.optimizer, y)) == losses
    assert not compiled.graph._engine.eager_calls.has_begun
    World()
    again = World()
    losses = calls(lambda x, y: step(again.model, x, again.optimizer, y=y, weight=2))
    World()
    named = World()
    assert calls(lambda x, y: compiled(named.model, x, optimizer=named.optimizer, y=y, weight=2)) == losses


def test_an_array_among_the_arguments_is_converted_before_the_program():
    w = World()

    def step(x, y, *, weights):
        x = torch.as_tensor(x)
        weights = torch.as_tensor(weights, dtype=torch.float32)
        y = torch.as_tensor(y)
        loss = F.cross_entropy(w.model(x), y, weight=weights)
        w.update(loss)
        return loss.item()

    def losses(run):
        generator = np.random.default_rng(0)
        return [
            run(generator.random((16, 8), np.float32), np.arange(16) % 3, weights=np.ones(3))
            for _ in range(4)
        ]

    expected = losses(step)
    w = World()
    compiled = flow.compile_step(step, backend="aten")
    assert losses(compiled) == expected
    assert not compiled.graph._engine.eager_calls.has_begun and len(compiled.graph._engine.programs) == 1


def test_a_step_that_gets_other_code_is_followed():
    w = World()

    def step(x):
        weight = random.random()
        w.update(w.model(x).square().mean())
        return weight

    def other(x):
        text = f"{np.random.rand() < 2}"
        w.update(w.model(x).square().mean())
        return text

    compiled = flow.compile_step(step, backend="aten")
    x = torch.randn(16, 8)
    assert type(compiled(x)) is float and type(compiled(x)) is float
    step.__code__ = other.__code__
    assert [compiled(x), compiled(x)] == ["True"] * 2


def test_compiling_without_a_call_is_refused():
    w = World()

    def step(x):
        weight = random.random()
        w.update(w.model(x).square().mean() * weight)

    compiled = flow.compile_step(step, backend="aten")
    compiled(torch.ones(4, 8))
    with pytest.raises(UsageError, match="first lines of step run in Python"):
        compiled.graph._engine.find((torch.ones(4, 8),), {})


def test_the_first_lines_run_under_autocast():
    w = World()

    def step(x):
        dtype = (x @ x.t()).dtype if random.random() < 2 else None
        w.update(w.model(x).square().mean())
        return str(dtype)

    compiled = flow.compile_step(step, backend="aten", amp=True)
    assert [compiled(torch.ones(4, 8)) for _ in range(2)] == ["torch.float16"] * 2


def test_inductor_takes_the_variables_of_the_first_lines():
    runs = []
    for compile_step in (lambda step: step, lambda step: flow.compile_step(step, backend="inductor")):
        step = compile_step(mixes(World()))
        generator = torch.Generator().manual_seed(1)
        batches = torch.randn(8, 16, 8, generator=generator), torch.arange(16) % 3
        runs.append([step(x, batches[1]) for x in batches[0]])
    torch.testing.assert_close(*map(torch.tensor, runs), rtol=1e-4, atol=1e-5)
    assert not step.graph._engine.eager_calls.has_begun


def test_a_module_in_another_mode_in_the_first_lines():
    w = World()
    layer = nn.Dropout(0.5)

    def step(x):
        layer.train(random.random() < 0.5)
        dropped = layer(x)
        w.update(w.model(dropped).square().mean())
        return (dropped == 0).any().item()

    expected = []
    for run in (step, flow.compile_step(step, backend="aten")):
        w = World()
        expected.append([run(torch.ones(16, 8)) for _ in range(8)])
    assert expected[0] == expected[1] and len(set(expected[0])) == 2
