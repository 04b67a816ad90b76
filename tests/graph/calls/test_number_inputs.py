"""Python numbers that build() reads and that change: they are inputs of one program, and each run stores the
new numbers. Each step is compared with eager mode: its results, their types, and the numbers it leaves.
"""

import functools
import math
import types

import pytest
import torch
import torch.nn.functional as F

import oneflow as flow

pytestmark = pytest.mark.eager_calls
CALLS = 9


class Slotted:
    __slots__ = ("n",)

    def __init__(self, n):
        self.n = n


class Meter:
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class Setting:
    rate = 1.0


total = 0  # of step_of_global


def step_of_variable():
    n = 0.0

    def step(x):
        nonlocal n
        n = n * 0.5 + 1
        return x * n, n

    return step, lambda: n


def step_of_global():
    def step(x):
        global total
        total = total + 1
        return x * total

    globals()["total"] = 0
    return step, lambda: total


def step_of_dict():
    d = {"tau": 1.0, "name": "a"}

    def step(x):
        d["tau"] *= 0.9
        return x * d["tau"] * len(d["name"])

    return step, lambda: d


def step_of_slot():
    s = Slotted(3.0)

    def step(x):
        s.n = s.n / 2
        return x + s.n

    return step, lambda: s.n


def step_of_class():
    Setting.rate = 1.0

    def step(x):
        Setting.rate = Setting.rate * 0.9
        return x * Setting.rate

    return step, lambda: Setting.rate


def step_of_module():
    module = torch.nn.Linear(4, 4)
    module.step, module.tau = 0, 1.0
    for parameter in module.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        module.step += 1
        module.tau = module.tau * 0.9
        loss = (module(x) * (module.step / 10)).tanh().sum() * module.tau
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda: (module.step, module.tau, module.weight.detach().clone())


def step_of_schedule():
    s = Slotted(0)

    def step(x):
        s.n += 1
        return x * (0.05 + 0.95 * math.exp(-s.n / 10)), x * math.cos(math.pi * s.n / 20)

    return step, lambda: s.n


def step_of_arithmetic():
    s = Slotted(1)

    def step(x):
        s.n = s.n + 1
        t = s.n / 10
        numbers = (
            2**s.n,
            s.n**2,
            -s.n,
            abs(s.n),
            round(t, 1),
            s.n - 1.5,
            3 - s.n,
            s.n % 4,
            s.n // 3,
            s.n * True,
        )
        tensors = (
            x / (1 - 0.9**s.n),
            x.add(x, alpha=t),
            torch.lerp(x, x * 2, t),
            x.clamp(max=t),
            x.int() * s.n,
        )
        return (
            numbers,
            tensors,
            torch.where(x > 0, x, t),
            x == s.n,
            torch.full_like(x, t),
            torch.pow(x.abs(), t),
        )

    return step, lambda: s.n


def step_of_divisions():
    s = Slotted(0.0)

    def step(x):
        s.n = s.n + 1.0
        tenth = s.n * 0.0 + 0.1  # torch computes floor(1.0 / 0.1) for 1.0 // 0.1, which is 9.0
        return (
            1.0 // tenth,
            (s.n * 0.0 + 6.0) // 0.1,
            6 // tenth,
            (x * 0 + 1).max().item() // 0.1,
            s.n // -0.3,
        )

    return step, lambda: s.n


def step_of_integers():
    s = Slotted(1)

    def step(x):
        rows, count = torch.arange(3, dtype=torch.int32), (x == x).sum().item()
        s.n += count
        return s.n % 3, -s.n, s.n // 2, rows * s.n, rows * (s.n**2), rows // s.n, rows + s.n

    return step, lambda: s.n


def step_of_activations():
    s = Slotted(1.0)
    weight = torch.ones(3, 4, requires_grad=True)

    def step(x):
        s.n = s.n * 0.9
        y = F.elu(x * weight, alpha=s.n) + F.leaky_relu(x * weight, s.n) + F.softplus(x * weight, beta=s.n)
        y = y + F.threshold(x * weight, s.n, s.n * 2) + F.hardtanh(x * weight, -s.n, s.n)
        (gradient,) = torch.autograd.grad(y.sum(), weight)
        return y.detach(), gradient

    return step, lambda: s.n


def step_of_average_of_losses():
    s = Slotted(0.0)

    def step(x):
        s.n = 0.9 * s.n + 0.1 * (x * x).mean().item()
        return x * 2

    return step, lambda: s.n


def step_of_accuracy():
    correct, seen = 0, 0

    def step(x):
        nonlocal correct, seen
        correct += (x > 0).sum().item()
        seen += x.size(0)
        return x * 2

    return step, lambda: (correct, seen)


def step_of_meter():
    meter = Meter()

    def step(x):
        meter.update((x * x).mean().item(), x.size(0))
        return x * 2

    return step, lambda: dict(vars(meter))


class Schedule:
    def __init__(self):
        self.start, self.updates = 2.0, 0

    @torch.no_grad()
    def rate(self):
        self.updates += 1
        return self.start / (1 + self.updates)


def step_of_decorated_method():
    schedule = Schedule()

    def step(x):
        return x * schedule.rate()

    return step, lambda: vars(schedule)


def step_of_dict_read_as_a_whole():
    d = {"scale": 2.0, "n": 1}

    def step(x):
        d["n"] += 1
        return x * d["n"] * sum(d.values()), dict(d), list(d)

    return step, lambda: d


def step_of_swap():
    a, b = Slotted(1.0), Slotted(2.0)

    def step(x):
        a.n, b.n = b.n, a.n + 1
        return x * a.n - b.n

    return step, lambda: (a.n, b.n)


def step_of_result():
    s = Slotted(5)

    def step(x):
        before, s.n = s.n, s.n + 1
        return {"before": before, "after": [s.n, (before, x)]}

    return step, lambda: s.n


def step_of_history():
    s, history = Slotted(0), []

    def step(x):
        s.n += 1
        history.append(s.n)
        return x * s.n

    return step, lambda: history


def step_of_perplexity():
    s = Slotted(0.5)

    def step(x):
        s.n = s.n * 0.5
        return math.exp((x * x).mean().item()) * s.n

    return step, lambda: s.n


ONE_PROGRAM = [value for name, value in list(globals().items()) if name.startswith("step_of_")]


def branch_on_count():
    s = Slotted(0)

    def step(x):
        s.n += 1
        return x * 2 if s.n % 4 == 0 else x

    return step, lambda: s.n


def branch_of_maximum():
    s = Slotted(1.0)

    def step(x):
        s.n = max(0.8, s.n * 0.95)
        return x * s.n

    return step, lambda: s.n


def reset():
    a, b = Slotted(0), Slotted(0.0)

    def step(x):
        a.n += 1
        b.n = a.n * 0.5
        now = a.n
        a.n = 0 if a.n >= 3 else a.n
        return x * now + b.n

    return step, lambda: (a.n, b.n)


def meets_error():
    s = Slotted(0)

    def step(x):
        s.n += 1
        if s.n == 4:
            raise ValueError("four")
        return x * s.n

    return step, lambda: s.n


def begins_with_none():
    s = Slotted(None)

    def step(x):
        s.n = 1.0 if s.n is None else s.n + 0.5
        return x * s.n

    return step, lambda: s.n


def becomes_a_float():
    s = Slotted(0)

    def step(x):
        s.n = s.n + (1 if s.n < 3 else 0.5)
        return x * s.n

    return step, lambda: s.n


FEW_PROGRAMS = [branch_on_count, branch_of_maximum, reset, meets_error, begins_with_none, becomes_a_float]


def needs_a_range():
    s = Slotted(1)

    def step(x):
        s.n += 1
        for _ in range(s.n):
            x = x + 1
        return x

    return step, lambda: s.n


def needs_an_index():
    s = Slotted(0)

    def step(x):
        row = x[s.n % 3]
        s.n += 1
        return row

    return step, lambda: s.n


def needs_a_size():
    s = Slotted(1)

    def step(x):
        s.n = s.n + 1
        return torch.zeros(s.n), x[: s.n % 3], x.repeat(s.n, 1), torch.arange(s.n), x.new_full((s.n,), 1.0)

    return step, lambda: s.n


def needs_a_text():
    s = Slotted(0)

    def step(x):
        s.n += 1
        text = f"{s.n:03d}"
        return x * len(text), text

    return step, lambda: s.n


def needs_a_key():
    s, seen = Slotted(0), {}

    def step(x):
        s.n += 1
        seen[s.n] = s.n * 2
        return x * s.n

    return step, lambda: seen


def needs_a_float():
    s = Slotted(0)

    def step(x):
        s.n = s.n + 1
        return x * float(s.n), int(s.n), 7.5 // (s.n * 0.1), divmod(s.n, 3), isinstance(s.n, int)

    return step, lambda: s.n


def needs_its_class():
    s = Slotted(0)

    @functools.singledispatch
    def kind(value):
        return "object"

    kind.register(int, lambda value: "int")

    def step(x):
        s.n = s.n + 1
        same = s.n
        return (
            x * s.n,
            kind(s.n),
            hasattr(s.n, "real"),
            getattr(s.n, "imag", None),
            same is s.n,
            s.n is not None,
        )

    return step, lambda: s.n


def keeps_it_in_an_object():
    s, kept = Slotted(0), types.SimpleNamespace(last=None)

    def step(x):
        s.n += 1
        kept.last = types.SimpleNamespace(n=s.n)
        return x * s.n

    return step, lambda: kept.last and kept.last.n


def divides_by_zero():
    s = Slotted(3)

    def step(x):
        s.n = s.n - 1 if s.n > -3 else 5
        try:
            inverse = 1 / s.n
        except ZeroDivisionError:
            inverse = 7.0
        return x * inverse

    return step, lambda: s.n


def root_of_a_negative_number():
    s = Slotted(0.5)

    def step(x):
        s.n -= 0.2
        return (x * (s.n**0.5)).abs()

    return step, lambda: s.n


def deletes_it():
    d = {"n": 8, "m": 1}

    def step(x):
        d["m"] = d.pop("n") - d["m"] if "n" in d else d["m"] + 1
        if d["m"] > 8:
            d["n"] = 3
        return x * d["m"]

    return step, lambda: list(d.items())


IN_EAGER_MODE = [
    needs_a_range, needs_an_index, needs_a_size, needs_a_text, needs_a_key, needs_a_float, needs_its_class,
    keeps_it_in_an_object,
    divides_by_zero, root_of_a_negative_number, deletes_it,
]  # fmt: skip


def shown(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, dict):
        return {key: shown(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [shown(v) for v in value]
    return type(value), value


def outcomes(step, read, calls=CALLS, before=lambda call: None):
    for call in range(calls):
        before(call)
        torch.manual_seed(call)
        try:
            result = step(torch.randn(3, 4))
        except ValueError as error:
            result = repr(error)
        yield shown(result), shown(read())


def compared(make, backend="aten"):
    """Compare a step with eager mode, and return the graph."""
    expected = list(outcomes(*make()))
    step, read = make()
    compiled = flow.compile_step(step, backend=backend)
    for call, (result, wanted) in enumerate(zip(outcomes(compiled, read), expected)):
        assert result == wanted, f"call {call}"
    return compiled.graph


@pytest.mark.parametrize("make", ONE_PROGRAM)
def test_one_program_serves_all_numbers(make):
    graph = compared(make)
    assert "eager mode" not in str(graph.explain())
    assert len(graph._engine.programs) <= 2, "one of the first call, whose numbers may have another type"


@pytest.mark.parametrize("make", FEW_PROGRAMS)
def test_a_branch_on_a_number_is_a_condition(make):
    assert len(compared(make)._engine.programs) <= 3


@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
@pytest.mark.parametrize("make", IN_EAGER_MODE)
def test_a_number_that_is_needed_itself_has_its_value(make):
    compared(make)


@pytest.mark.compiler
@pytest.mark.parametrize("make", [step_of_arithmetic, step_of_integers, step_of_meter])
def test_inductor_takes_numbers_as_inputs(make):
    assert len(compared(make, "inductor")._engine.programs) <= 3


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 0.5, 0.25, -1.0, math.inf, -0.0, 1e30],
        [1, 2, 3, 4, 5, 6],
        [1, 2, 2.5, True, None, "a", 3, 4],
        [1.0, torch.tensor(2.0), 3.0, 4.0],
    ],
)
def test_a_number_that_others_change_is_followed(values):
    s = Slotted(values[0])

    def step(x):
        return x * s.n if isinstance(s.n, torch.Tensor) or type(s.n) in (int, float, bool) else x

    def plain(x):
        return x * s.n + 1

    numbers = all(type(value) in (int, float) for value in values)
    step = plain if numbers else step
    compiled = flow.compile_step(step, backend="aten")
    for value in values:
        s.n = value
        x = torch.randn(3, 4)
        assert torch.equal(compiled(x), step(x))
    assert not numbers or len(compiled.graph._engine.programs) == 2


@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
def test_a_key_or_a_text_leaves_other_numbers_inputs():
    key, text, rate = Slotted(0), Slotted(0), Slotted(1.0)

    def step(x):
        key.n, text.n, rate.n = (key.n + 1) % 2, (text.n + 1) % 2, rate.n * 0.5
        x = x * 2 if key.n in {1} else x
        return x * rate.n, f"{text.n}"

    compiled = flow.compile_step(step, backend="aten")
    x = torch.ones(3)
    for call in range(1, 7):
        y, shown_text = compiled(x)
        assert torch.equal(y, x * (2 if call % 2 else 1) * 0.5**call)
        assert (shown_text, rate.n) == (f"{call % 2}", 0.5**call)
    inputs = [source.label for source in compiled.graph._engine.assumptions.numbers.inputs]
    assert inputs == ["Slotted.n"], "only the rate"


def test_an_error_of_a_run_leaves_the_number():
    s = Slotted(0)

    def step(x, index):
        s.n = s.n + 1
        return x[index] * s.n

    compiled = flow.compile_step(step, backend="aten")
    x, inside, outside = torch.randn(3), torch.tensor([0, 1]), torch.tensor([0, 7])
    compiled(x, inside), compiled(x, inside)
    assert s.n == 2
    with pytest.raises(IndexError):
        compiled(x, outside)
    assert type(s.n) is int
    assert torch.equal(compiled(x, inside), x[inside] * s.n)


def test_step_of_an_optimizer_finds_the_number_that_build_left():
    class Scaled(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.add_(parameter.grad, alpha=-0.1 * counter.n)

    def losses(make):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        counter.n = 0
        run = make(model, Scaled(model.parameters(), 0.1))
        for _ in range(5):
            yield run(torch.ones(2, 4)).item()

    def eager(model, optimizer):
        def run(x):
            optimizer.zero_grad()
            counter.n = counter.n + 1
            loss = model(x).sum() * counter.n
            loss.backward()
            optimizer.step()
            return loss

        return run

    class Trains(flow.nn.Graph):
        def __init__(self, model, optimizer):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)
            self.config.set_backend("aten")

        def build(self, x):
            counter.n = counter.n + 1
            loss = self.model(x).sum() * counter.n
            loss.backward()
            return loss

    counter = Slotted(0)
    assert list(losses(Trains)) == list(losses(eager))


def test_a_graph_returns_the_number_itself():
    class Scaled(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.scale = 1
            self.config.set_backend("aten")

        def build(self, x):
            return x * self.scale, self.scale

    graph, x = Scaled(), torch.ones(2)
    for graph.scale in (1, 2, 3, 4):
        y, scale = graph(x)
        assert (scale, type(scale)) == (graph.scale, int) and torch.equal(y, x * scale)
    assert len(graph._engine.programs) == 2


def test_an_attribute_of_the_graph_is_an_input():
    class Annealed(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.step, self.correct, self.noise = 0, 0, 1.0
            self.config.set_backend("aten")

        def build(self, x, labels):
            self.step += 1
            self.noise *= 0.9
            self.correct += (x.argmax(1) == labels).sum().item()
            return x * min(1.0, self.step / 100) + self.noise, self.correct / self.step

    graph, x, labels = Annealed(), torch.eye(2), torch.tensor([0, 0])
    noise = 1.0
    for step in range(1, 6):
        y, share = graph(x, labels)
        noise *= 0.9
        assert torch.equal(y, x * (step / 100) + noise)
        assert (graph.step, graph.correct, graph.noise, share) == (step, step, noise, 1.0)
    assert len(graph._engine.programs) == 1


def add_group(optimizer, layers):
    optimizer.add_param_group({"params": list(layers[1].parameters()), "lr": 0.001})


def clear_state(optimizer, layers):
    optimizer.state.clear()


@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
@pytest.mark.parametrize("change", [add_group, clear_state])
def test_what_one_call_changes_in_an_optimizer_is_changed_once(change):
    def trained(compile_step):
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
        optimizer = torch.optim.Adam(layers[0].parameters(), 0.01)
        count = {"n": 0}

        @compile_step
        def step(x):
            count["n"] += 1
            if count["n"] == 4:
                change(optimizer, layers)
            optimizer.zero_grad()
            loss = layers(x).square().sum()
            loss.backward()
            optimizer.step()
            if count["n"] == 6 and change is clear_state:
                change(optimizer, layers)
            return loss

        losses = [step(torch.ones(2, 4)).item() for _ in range(9)]
        return losses, len(optimizer.param_groups), [p.tolist() for p in layers.parameters()]

    assert trained(flow.compile_step(backend="aten")) == trained(lambda step: step)


def test_a_saved_program_has_the_number_of_the_call(tmp_path):
    class Scaled(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.scale = 1.0

        def build(self, x):
            return x * self.scale

    graph, x = Scaled(), torch.randn(3, 4)
    for graph.scale in (1.0, 2.0, 3.0):
        assert torch.equal(graph(x), x * graph.scale)
    flow.save(graph, tmp_path / "graph")
    assert torch.equal(flow.load(tmp_path / "graph")(x), x * 3.0)
