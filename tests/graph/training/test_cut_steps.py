"""Steps with lines that no program holds: the last lines run in Python after the program, or the program
tests the outcome of a branch on a value. Each step is compared with eager mode: results, what it prints and
keeps, weights, optimizer state and random state, bit for bit.
"""

import functools
import io
import math
import pickle
import threading
import types
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from steps_in_parts import World, assert_follows_eager
from torch import nn

import oneflow as flow

pytestmark = pytest.mark.eager_calls


def prints(w):
    def step(x, y):
        loss = w.loss(x, y)
        w.update(loss)
        print(f"loss {loss.item():.4f}")
        return loss

    return step


def prints_at_times(w):
    w.kept["n"] = 0

    def step(x, y):
        loss = w.loss(x, y)
        w.update(loss)
        w.kept["n"] += 1
        if w.kept["n"] % 3 == 0:
            print("step", w.kept["n"], "loss", float(loss.detach()))
        return loss

    return step


def keeps_the_best(w):
    w.kept.update(best=math.inf, patience=0)

    def step(x, y):
        loss = w.loss(x, y)
        w.update(loss)
        value = loss.item()
        if value < w.kept["best"]:
            w.kept.update(best=value, patience=0, state=[p.detach().clone() for p in w.model.parameters()])
        else:
            w.kept["patience"] += 1
        return value, w.kept["patience"]

    return step


def converts_to_numpy(w):
    w.kept["predictions"] = []

    def step(x, y):
        out = w.model(x)
        loss = F.cross_entropy(out, y)
        w.update(loss)
        w.kept["predictions"].append(out.detach().cpu().numpy())
        return {"loss": float(loss.detach()), "accuracy": np.mean(out.argmax(1).numpy() == y.numpy())}

    return step


def samples_after_the_update(w):
    def step(x, y):
        w.update(w.loss(x + 0.1 * torch.randn_like(x), y))
        noise = torch.randn(2)
        print(noise)
        return noise.tolist(), torch.rand(2)

    return step


def returns_before_the_cut(w):
    w.kept["n"] = 0

    def step(x, y):
        w.kept["n"] += 1
        if w.kept["n"] % 4 == 0:
            return None
        loss = w.loss(x, y)
        w.update(loss)
        print(loss.item() > 1)

    return step


def binds_variables_at_times(w):
    w.kept["n"] = 0

    def step(x, y):
        w.kept["n"] += 1
        if w.kept["n"] > 3:
            extra = x * w.kept["n"]
        w.update(w.loss(x, y))
        try:
            print(f"{extra.sum().item():.3f}")
        except NameError as error:
            print(type(error).__name__)

    return step


def names_of_several_kinds(w):
    count = 0

    def step(x, y, *rest, scale=2.0, **others):
        nonlocal count
        a, (b, *c) = x[:, 0], [x.mean(), x.sum(), "text"]
        for i in range(2):
            a = a + i
        *_, last = rest or (None,)
        count += 1
        w.update(w.loss(x * scale, y))
        count += round(b.item(), 1) > 0
        return f"{a.sum().item():.3f} {c[0].item():.3f} {c[1]} {i} {last} {others} {count}", [
            len(x) for _ in c
        ]

    return step


def shares_a_variable_with_a_function(w):
    def step(x, y):
        n = 1

        def add():
            return n + 1

        w.update(w.loss(x, y))
        n = len(f"{x.sum().item():.1f}")
        return add(), n

    return step


def is_cut_twice(w):
    def step(x, y):
        loss = w.loss(x, y)
        w.update(loss)
        norm = sum(p.detach().square().sum() for p in w.model.parameters())
        if w.kept.setdefault("n", 0) > 4:
            print(f"norm {norm.item():.3f}")
        w.kept["n"] += 1
        print(f"loss {loss.item():.3f}")
        return norm

    return step


def writes_in_the_tail(w):
    def step(x, y):
        loss = w.loss(x, y)
        w.update(loss)
        if loss.item() < 1.1:
            with torch.no_grad():
                for p in w.model.parameters():
                    p.mul_(0.99)
            x.add_(1)
            w.optimizer.param_groups[0]["lr"] *= 0.9
        return loss

    return step


def steps_a_schedule_by_the_loss(w):
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(w.optimizer, patience=1)

    def step(x, y):
        loss = w.loss(x, y)
        w.update(loss)
        schedule.step(loss.item())
        return loss, w.optimizer.param_groups[0]["lr"]

    return step


def raises_in_the_tail(w):
    def step(x, y):
        loss = w.loss(x, y)
        w.update(loss)
        w.kept["loss"] = loss.item()
        w.kept["n"] = w.kept.get("n", 0) + 1
        if loss.item() < 1.15:
            raise ValueError(f"loss {loss.item():.3f}")
        return loss

    def caught(x, y):
        try:
            return caught.step(x, y)
        except ValueError as error:
            frame = error.__traceback__
            while frame.tb_next is not None:
                frame = frame.tb_next
            return str(error), frame.tb_frame.f_code.co_name, frame.tb_lineno

    step.wrapped = caught
    return step


def evaluates(w):
    w.model.eval()

    @torch.no_grad()
    def forward(x):
        return w.model(x)

    def step(x, y):
        out = forward(x)
        correct = (out.argmax(1) == y).sum()
        print(f"{correct.item()} of {len(y)}: {correct.item() / len(y):.1%}")
        return out

    return step


def keeps_parameters_and_views(w):
    def step(x, y):
        weight = w.model[0].weight
        row, means, first = weight.detach()[0], w.model[1].running_mean[:4], x[0]
        w.update(w.loss(x, y))
        gradient = weight.grad
        print(row.sum().item(), first.sum().item(), gradient.sum().item())
        row.add_(1.0)
        means.zero_()
        first.add_(3)
        gradient.zero_()
        return weight is w.model[0].weight, gradient is weight.grad, x

    return step


def passes_objects_on(w):
    def step(x, y):
        import math as m
        from collections import Counter

        out = w.model(x)
        loss = F.cross_entropy(out, y)
        w.update(loss)
        results = types.SimpleNamespace(loss=loss.detach(), rows=[out.detach()], of=x)
        rows, count = results.rows, Counter(a=1)
        print(f"{results.loss.item():.3f}", rows is results.rows, results.of is x, m.sqrt(count["a"]))
        rows.append(1)
        return len(results.rows)

    return step


def joins_a_thread(w):
    w.kept["losses"] = []

    def step(x, y):
        loss = w.loss(x, y)
        w.update(loss)
        thread = threading.Thread(target=lambda: w.kept["losses"].append(loss.item()))
        thread.start()
        thread.join()
        return loss

    return step


def assigns_an_attribute_of_the_optimizer(w):
    def step(x, y):
        loss = w.loss(x, y)
        w.update(loss)
        w.optimizer.last = loss.detach()
        return loss, sorted(w.optimizer.__dict__)

    return step


TAILS = [
    prints,
    prints_at_times,
    keeps_the_best,
    converts_to_numpy,
    samples_after_the_update,
    returns_before_the_cut,
    binds_variables_at_times,
    names_of_several_kinds,
    is_cut_twice,
    writes_in_the_tail,
    steps_a_schedule_by_the_loss,
    raises_in_the_tail,
    evaluates,
    keeps_parameters_and_views,
    passes_objects_on,
    joins_a_thread,
]


def stops_for_infinite_losses(w):
    def step(x, y):
        loss = w.loss(x, y)
        value = loss.item()
        if not math.isfinite(value):
            raise SystemExit(f"loss is {value}")
        w.update(loss)
        return value

    return step


def skips_large_gradients(w):
    w.kept["skipped"] = 0

    def step(x, y):
        w.optimizer.zero_grad()
        loss = w.loss(x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(w.model.parameters(), 1.0).item()
        if norm > 0.7:
            w.kept["skipped"] += 1
            return norm
        w.optimizer.step()
        return loss

    return step


def weighs_by_the_loss(w):
    def step(x, y):
        loss = w.loss(x, y)
        weight = 2.0 if loss.item() > 1.1 else 1.0
        w.update(loss * weight)
        return loss, weight

    return step


def branches_on_a_tensor(w):
    def step(x, y):
        loss = w.loss(x, y)
        if loss > 1.1 and (loss - 1.2).abs() < 0.2:
            loss = loss * 2
        w.update(loss)
        return loss

    return step


def branches_in_a_method(w):
    def choose(loss):
        if loss.item() * 2 + 1 >= 3.2:
            return loss.square()
        return loss

    def step(x, y):
        with torch.enable_grad():
            w.update(choose(w.loss(x, y)))

    return step


def branches_and_prints(w):
    def step(x, y):
        loss = w.loss(x, y)
        if loss.item() > 1.1:
            loss = loss * 2
        w.update(loss)
        print(f"{loss.item():.3f}")

    return step


def scales_by_numbers(w):
    def step(x, y):
        loss = w.loss(x, y)
        scale = min(1.0, 1.1 / max(loss.item(), 1e-8))
        if loss.item() > 1.1:
            scale = scale * 0.5
        w.update(loss * scale)
        return scale

    return step


def clips_by_hand(w):
    def step(x, y):
        w.optimizer.zero_grad()
        loss = w.loss(x, y)
        loss.backward()
        norm = max(p.grad.norm().item() for p in w.model.parameters())
        if norm > 0.3:
            for p in w.model.parameters():
                p.grad.mul_(0.3 / norm)
        w.optimizer.step()
        return norm

    return step


def two_branches(w):
    def step(x, y):
        loss = w.loss(x, y)
        mean = x.mean()
        if mean.item() > 0:
            loss = loss + mean
        if loss.item() > 1.1:
            loss = loss * 0.5
        w.update(loss)
        return loss

    return step


BRANCHES = [
    stops_for_infinite_losses, skips_large_gradients, weighs_by_the_loss, branches_on_a_tensor,
    branches_in_a_method, branches_and_prints, two_branches, scales_by_numbers, clips_by_hand,
]  # fmt: skip


def needs_the_history_behind_a_print(w):
    def step(x, y):
        loss = w.loss(x, y)
        print(f"{loss.item():.3f}")
        w.update(loss)
        return loss.detach()

    return step


def keeps_a_history_for_a_second_loss(w):
    other = nn.Linear(3, 1)
    others = torch.optim.SGD(other.parameters(), 0.1)

    def step(x, y):
        out = w.model(x)
        critic = other(out.detach()).square().mean()
        others.zero_grad()
        critic.backward()
        others.step()
        print(f"{critic.item():.3f}")
        w.update(other(out).mean() + F.cross_entropy(out, y))
        return critic.item()

    return step


@pytest.mark.parametrize("make", TAILS)
def test_the_last_lines_run_after_the_program(make, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = assert_follows_eager(make, capsys)
    assert not graph._engine.eager_calls.has_begun and graph._engine.programs
    assert "run in Python after each run of the program" in graph.explain()


def saves_a_checkpoint(w):
    def step(x, y):
        loss = w.loss(x, y)
        w.update(loss)
        file = io.BytesIO()
        torch.save({"model": w.model.state_dict(), "optimizer": w.optimizer.state_dict()}, file)
        w.kept["loaded"] = torch.load(io.BytesIO(file.getvalue()))
        return loss

    return step


def pickles_a_result(w):
    def step(x, y):
        loss = w.loss(x, y)
        w.update(loss)
        w.kept["bytes"] = pickle.dumps(loss.tolist())
        return loss

    return step


@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
@pytest.mark.parametrize("make", [saves_a_checkpoint, pickles_a_result])
def test_last_lines_that_raise_only_in_a_capture_run_after_the_program(make, capsys):
    graph = assert_follows_eager(make, capsys)
    assert graph._engine.programs
    assert "run in Python after each run of the program" in graph.explain()


@pytest.mark.parametrize("make", BRANCHES)
def test_a_branch_on_a_value_is_an_outcome_of_the_program(make, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = assert_follows_eager(make, capsys)
    assert not graph._engine.eager_calls.has_begun and 1 <= len(graph._engine.programs) <= 4


@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
@pytest.mark.parametrize(
    "make",
    [
        needs_the_history_behind_a_print,
        keeps_a_history_for_a_second_loss,
        shares_a_variable_with_a_function,
    ],
)
def test_a_step_that_cannot_be_cut_runs_in_eager_mode(make, capsys):
    graph = assert_follows_eager(make, capsys)
    assert graph._engine.eager_calls.has_begun


@pytest.mark.parametrize("make", [prints, keeps_the_best, weighs_by_the_loss])
def test_a_strict_step_is_cut(make, capsys):
    assert_follows_eager(make, capsys, strict=True)


class Trainer(World):
    def step(self, x, y, factor=1):
        """A method with a default."""
        loss = self.loss(x * factor, y)
        self.update(loss)
        self.kept["loss"] = f"{loss.item():.3f}"
        return self.kept["loss"], factor


def runs(world, step, *arguments):
    generator = torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(16, 8, generator=generator), torch.randint(0, 3, (16,), generator=generator))
        for _ in range(6)
    ]
    return [step(*arguments, *batch) for batch in batches], repr(world)


def test_a_method_and_objects_among_the_arguments():
    expected, found = Trainer(), Trainer()
    compiled = flow.compile_step(found.step, backend="aten")
    assert runs(found, compiled) == runs(expected, expected.step)
    assert not compiled.graph._engine.eager_calls.has_begun

    def step(model, optimizer, x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return f"{loss.item():.3f}"

    compiled = flow.compile_step(step, backend="aten")
    arguments = found.model, found.optimizer
    assert runs(found, compiled, *arguments) == runs(expected, step, expected.model, expected.optimizer)
    assert not compiled.graph._engine.eager_calls.has_begun


def test_a_step_that_gets_other_code_or_defaults_is_followed():
    w = World()

    def step(x, factor=1):
        loss = w.model(x).square().mean() * factor
        w.update(loss)
        return f"{factor} {loss.item() < 0}"

    def other(x, factor=1):
        w.update(w.model(x).square().mean())
        return f"other {x.sum().item() < -100} {factor}"

    compiled = flow.compile_step(step, backend="aten")
    x = torch.randn(16, 8)
    assert [compiled(x), compiled(x)] == ["1 False"] * 2
    step.__defaults__ = (3,)
    assert compiled(x) == "3 False"
    step.__code__ = other.__code__
    assert [compiled(x), compiled(x)] == ["other False 3"] * 2


def test_a_step_without_source_runs_in_eager_mode():
    w = World()
    scope = {"w": w}
    exec(
        "def step(x):\n  loss = w.model(x).square().mean()\n  w.update(loss)\n  return f'{loss.item():.3f}'",
        scope,
    )
    compiled = flow.compile_step(scope["step"], backend="aten")
    with pytest.warns(UserWarning, match="no program can hold this call"):
        texts = [compiled(torch.ones(4, 8)) for _ in range(3)]
    assert len(set(texts)) == 3 and compiled.graph._engine.eager_calls.has_begun


@pytest.mark.parametrize("make", [needs_the_history_behind_a_print, keeps_a_history_for_a_second_loss])
def test_a_warning_of_eager_calls_is_at_the_line_of_the_call(make):
    compiled = flow.compile_step(make(World()), backend="aten")
    with pytest.warns(UserWarning, match="no program can hold this call") as caught:
        compiled(torch.randn(16, 8), torch.arange(16) % 3)
    assert {warning.filename for warning in caught} == {__file__}


def test_the_tail_runs_under_autocast():
    w = World()

    def step(x):
        w.update(w.model(x).square().mean())
        return f"{(x @ x.t()).dtype}", x.sum().item() > 1e6 or f"{x.sum().item():.1f}"

    compiled = flow.compile_step(step, backend="aten", amp=True)
    x = torch.ones(4, 8)
    assert [compiled(x), compiled(x)] == [("torch.float16", "32.0")] * 2  # the dtype of enable_amp()


def test_inductor_cuts_and_branches(capsys):
    for make in (keeps_the_best, weighs_by_the_loss):
        world = World()
        compiled = flow.compile_step(make(world), backend="inductor")
        x, y = torch.randn(16, 8), torch.arange(16) % 3
        losses = [compiled(x, y)[0] for _ in range(12)]
        assert losses[-1] < losses[0] and not compiled.graph._engine.eager_calls.has_begun


def has_a_nonlocal_variable_in_the_tail(w):
    def step(x, y):
        n = 1
        w.update(w.loss(x, y))
        text = f"{x.sum().item():.2f}"

        def count():
            nonlocal n
            n += 1
            return n

        return text, count(), n

    return step


def unbinds_a_parameter(w):
    def step(x, y, extra=None, error=3):
        try:
            extra = extra.sum()
        except AttributeError as error:
            w.kept["error"] = str(error)
        w.update(w.loss(x, y))
        del extra
        print(f"{x.sum().item():.2f}")
        try:
            return extra, error  # noqa: F821 -- unbound on purpose
        except UnboundLocalError as unbound:
            return str(unbound)

    return step


def changes_its_keywords(w):
    def step(x, y, **named):
        named["n"] = len(x)
        w.update(w.loss(x, y))
        print(f"{x.sum().item():.2f}")
        return sorted(named)

    return step


def keeps_an_alias_of_a_list(w):
    w.kept.update(history=[], counts={"n": 0}, seen=set())

    def step(x, y):
        history, counts, seen = w.kept["history"], w.kept["counts"], w.kept["seen"]
        loss = w.loss(x, y)
        w.update(loss)
        history.append(round(loss.item(), 3))
        counts["n"] += 1
        seen.add(len(history))
        return history is w.kept["history"], counts is w.kept["counts"]

    return step


def keeps_elements_of_others(w):
    w.kept.update(rows=[{"n": 0}], pair=({"n": 0}, 1), total=[0])

    def step(x, y):
        first, of_pair = next(iter(w.kept["rows"])), w.kept["pair"][0]
        w.kept["total"] += [len(x)]
        loss = w.loss(x, y)
        w.update(loss)
        first["n"], of_pair["n"] = f"{loss.item():.3f}", np.mean([loss.item(), 1.0])
        return len(w.kept["total"])

    return step


def keeps_a_row_that_it_stores(w):
    w.kept["rows"] = []

    def step(x, y):
        row = {"n": len(w.kept["rows"])}
        w.kept["rows"].append(row)
        loss = w.loss(x, y)
        w.update(loss)
        row["loss"] = f"{loss.item():.3f}"
        return row is w.kept["rows"][-1]

    return step


def keeps_a_gradient_of_a_layer(w):
    def step(x, y):
        out = w.model(x)
        out.retain_grad()
        w.update(F.cross_entropy(out, y))
        print(f"{out.grad.sum().item():.4f}")

    return step


def returns_new_state_of_the_optimizer(w):
    def step(x, y):
        w.update(w.loss(x, y))
        moment = w.optimizer.state[w.model[0].weight]["exp_avg"]
        print(f"{moment.sum().item():.4f}")
        return moment is w.optimizer.state[w.model[0].weight]["exp_avg"]

    return step


def calls_itself(w):
    def step(x, y, depth=0):
        loss = w.loss(x, y)
        w.update(loss)
        if depth < 1 and loss.item() < 1.2:
            return step.compiled(x, y, depth + 1), depth
        return f"{loss.item():.3f}", depth

    step.compiled = step
    return step


@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
@pytest.mark.parametrize(
    "make",
    [
        assigns_an_attribute_of_the_optimizer,
        has_a_nonlocal_variable_in_the_tail,
        unbinds_a_parameter,
        changes_its_keywords,
        keeps_an_alias_of_a_list,
        keeps_elements_of_others,
        keeps_a_row_that_it_stores,
        keeps_a_gradient_of_a_layer,
        returns_new_state_of_the_optimizer,
        calls_itself,
    ],
)
def test_what_crosses_the_cut_is_that_of_eager_mode(make, capsys):
    assert_follows_eager(make, capsys)


def test_a_step_that_calls_itself_compiled(capsys):
    def make(w):
        step = calls_itself(w)
        step.compiled = flow.compile_step(step, backend="aten") if w.is_compiled else step
        return step

    results = []
    for is_compiled in (False, True):
        w = World()
        w.is_compiled = is_compiled
        run = make(w).compiled
        generator = torch.Generator().manual_seed(1)
        batches = [torch.randn(16, 8, generator=generator) for _ in range(8)]
        results.append([repr(run(x, torch.arange(16) % 3)) for x in batches] + [repr(w)])
    assert results[0] == results[1]


@pytest.mark.parametrize("bounds", [(1.0, 2.0), (1.2, 1.3)])
def test_a_mispredicted_first_run_keeps_the_state_of_the_optimizer(bounds):
    def make(w):
        p = w.p = torch.nn.Parameter(torch.ones(()))
        w.adam = torch.optim.Adam([p], 0.1)

        def step(x):
            w.adam.zero_grad()
            loss = (p * x).square()
            if loss.item() > bounds[1]:
                loss = loss * 3
            elif loss.item() > bounds[0]:
                loss = loss * 2
            loss.backward()
            w.adam.step()
            return w.adam.state[p]["step"].item(), p.item()

        return step

    results = []
    for compile_step in (lambda step: step, functools.partial(flow.compile_step, backend="aten")):
        step = compile_step(make(World()))
        results.append([step(torch.tensor(x)) for x in (2.0, 1.2, 0.1, 1.0, 1.2, 2.0, 0.1)])
    assert results[0] == results[1]


def test_a_run_that_fails_twice_keeps_the_state_of_the_optimizer():
    def trained(compile_step):
        p = torch.nn.Parameter(torch.ones(4))
        adam = torch.optim.Adam([p], 0.1)

        def step(index):
            adam.zero_grad()
            p[index].square().sum().backward()
            adam.step()

        run, seen = compile_step(step), []
        for index in ([0, 9], [1], [1, 9], [1, 2], [1, 2]):
            try:
                run(torch.tensor(index))
            except IndexError:
                seen.append("IndexError")
            seen.append([*p.tolist(), *(v.tolist() for v in adam.state[p].values())])
        return seen

    assert trained(functools.partial(flow.compile_step, backend="aten")) == trained(lambda step: step)


def test_a_method_of_an_object_with_slots():
    class Slotted:
        __slots__ = ("lines", "world")

        def __init__(self):
            self.lines, self.world = [], World()

        @flow.compile_step(backend="aten")
        def step(self, x, y):
            loss = self.world.loss(x, y)
            self.world.update(loss)
            self.lines.append(f"{loss.item():.4f}")

    slotted, world = Slotted(), World()
    x, y = torch.randn(16, 8), torch.arange(16) % 3
    expected = []
    for _ in range(4):
        slotted.step(x, y)
        loss = world.loss(x, y)
        world.update(loss)
        expected.append(f"{loss.item():.4f}")
    assert slotted.lines == expected


def test_a_step_reads_the_counter_of_its_optimizer():
    def counts(compile_step):
        p = torch.nn.Parameter(torch.ones(()))
        adam = torch.optim.Adam([p], 0.1)

        def step(x):
            adam.zero_grad()
            (p * x).square().backward()
            adam.step()
            return adam.state[p]["step"].item(), (adam.state[p]["step"] + 1).item()

        run = compile_step(step)
        return [run(torch.tensor(x)) for x in (2.0, 1.0, 0.5)]

    assert counts(functools.partial(flow.compile_step, backend="aten", strict=True)) == counts(
        lambda step: step
    )


def test_a_number_that_numpy_gets_is_a_number():
    layer = torch.nn.Linear(4, 1)

    def step(x):
        loss = layer(x).square().mean().item()
        return np.mean([loss, 1.0]), np.float64(loss), np.array([loss]).dtype

    compiled = flow.compile_step(step, backend="aten")
    x = torch.ones(2, 4)
    assert [(type(v), v) for v in compiled(x)] == [(type(v), v) for v in step(x)]
