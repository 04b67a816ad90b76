"""What no program can hold runs in eager mode, with the rules of a graph."""

import collections
import copy
import functools
import io
import re
import threading
import warnings
import weakref

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow import nn
from oneflow._errors import OneFlowError
from oneflow._graph.guards import native

pytestmark = pytest.mark.eager_calls
STEPS = 7


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.dropout, self.last = nn.Dropout(0.25), nn.Linear(4, 2)
        self.log = []

    def forward(self, x):
        return self.last(self.dropout(self.norm(self.first(x)).relu()))


def net():
    flow.manual_seed(0)
    return Net()


def inputs():
    flow.manual_seed(1)
    return [flow.randn(8, 3) for _ in range(STEPS)]


def trained(make_graph, build, **options):
    """Return the losses, and the state that the steps of a graph leave."""

    class Step(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            make_graph(self, model)

        def build(self, x):
            return build(self.model, x)

    model = net()
    step = Step(model)
    for name, value in options.items():
        getattr(step.config, name)(value)
    flow.manual_seed(2)
    losses = [step(x) for x in inputs()]
    return losses, step.state_dict(), model, step


def loss_of(model, x):
    loss = model(x).pow(2).mean()
    loss.backward()
    return loss


def loss_and_value(model, x):
    loss = model(x).pow(2).mean()
    loss.backward()
    if loss.item() > 1e9:
        raise FloatingPointError
    return loss


def with_sgd(graph, model):
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    graph.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5))


def with_adamw_and_clipping(graph, model):
    options = {"params": model.parameters(), "clip_grad_max_norm": 0.1, "clip_grad_norm_type": 2.0}
    graph.add_optimizer(flow.optim.AdamW([options], lr=0.01))


def with_scaler(graph, model):
    graph.add_optimizer(flow.optim.Adam(model.parameters(), lr=0.01))
    graph.set_grad_scaler(flow.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2))


def with_overflow(graph, model):
    graph.add_optimizer(flow.optim.Adam(model.parameters(), lr=0.01))
    graph.set_grad_scaler(flow.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=2))


def with_static_scaler(graph, model):
    graph.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))
    graph.set_grad_scaler(flow.amp.StaticGradScaler(8.0))


def with_micro_batches(graph, model):
    graph.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))
    graph.config.set_gradient_accumulation_steps(2)


def with_two_optimizers(graph, model):
    graph.add_optimizer(flow.optim.SGD(model.first.parameters(), lr=0.1))
    graph.add_optimizer(flow.optim.Adam(model.last.parameters(), lr=0.01))


def with_amp(graph, model):
    graph.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))
    graph.config.enable_amp(True, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "make_graph",
    [
        with_sgd,
        with_adamw_and_clipping,
        with_scaler,
        with_overflow,
        with_static_scaler,
        with_micro_batches,
        with_two_optimizers,
        with_amp,
    ],
)
def test_a_step_that_looks_at_its_loss_trains_as_the_program_of_the_same_step(make_graph):
    losses, state, _, _ = trained(make_graph, loss_of)
    eager_losses, eager_state, model, step = trained(make_graph, loss_and_value)
    assert step.program is None  # no program holds the step
    for a, b in zip(losses, eager_losses):
        assert torch.equal(a, b)
        assert not b.requires_grad
    _assert_equal(eager_state, state)
    assert all(p.grad is None for p in model.parameters())


def _assert_equal(actual, expected):
    if isinstance(expected, torch.Tensor):
        assert torch.equal(actual, expected)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            _assert_equal(actual[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected):
            _assert_equal(a, b)
    else:
        assert actual == expected


def graph_of(function, **options):
    """A graph whose build() is a function of one argument or more."""

    class Step(nn.Graph):
        def build(self, *args, **kwargs):
            return function(*args, **kwargs)

    graph = Step()
    for name, value in options.items():
        getattr(graph.config, name)(value)
    return graph


def test_a_warning_names_the_line_once_and_explain_repeats_it():
    graph = graph_of(lambda x: x if x.sum() > 0 else -x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(3):
            graph(torch.tensor([k - 1.0]))
    (message,) = [str(w.message) for w in caught]
    assert "runs in eager mode" in message
    assert "test_eager_calls.py" in message
    assert "graph_of(lambda x: x if x.sum() > 0 else -x)" in message
    assert "x.sum() > 0" in graph.explain()


def test_strict_makes_it_an_error():
    graph = graph_of(lambda x: x if x.sum() > 0 else -x, strict=True)
    with pytest.raises(OneFlowError, match="needs the value of a tensor"):
        graph(torch.ones(2))


def test_a_wrong_setup_is_an_error_and_not_a_call_in_eager_mode():
    model = net()

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

        def build(self, x):
            return self.model(x).mean()  # and no backward()

    with pytest.raises(OneFlowError, match="no parameter that got a gradient"):
        Step()(flow.ones(4, 3))


def test_an_error_of_build_reaches_the_caller_and_state_is_as_eager_mode_leaves_it():
    seen = []

    def step(x):
        seen.append(x.sum().item())
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        graph_of(step)(torch.ones(2))
    assert seen == [2.0]


def test_changes_of_a_capture_that_ends_are_taken_back_before_the_call_runs():
    box = {"n": 0, "list": [1, 2], "set": {1}}
    array = np.zeros(2)

    class Counted:
        __slots__ = ("n",)
        total = 0

    counted = Counted()
    counted.n = 0

    def step(x):
        box["n"] += 1
        box["new"] = 1
        box["list"].append(box["n"])
        box["set"].add(box["n"] + 1)
        array[0] += 1
        counted.n += 1
        Counted.total += 1
        return x if x.sum().item() > 0 else -x

    graph = graph_of(step)
    for _ in range(3):
        graph(torch.ones(2))
    assert box == {"n": 3, "new": 1, "list": [1, 2, 1, 2, 3], "set": {1, 2, 3, 4}}
    assert array.tolist() == [3, 0]
    assert (counted.n, Counted.total) == (3, 3)


def counted_in_counter():
    counter = collections.Counter()
    return lambda: counter.update("a"), lambda: counter["a"]


def counted_in_weak_set():
    keys, members = [Key() for _ in range(STEPS)], weakref.WeakSet()
    return lambda: members.add(keys[len(members)]), lambda: len(members)


def counted_in_thread_local():
    local = threading.local()

    def count():
        local.n = getattr(local, "n", 0) + 1

    return count, lambda: local.n


def counted_in_defaults():
    def function(n=0):
        return n

    def count():
        function.__defaults__ = (function() + 1,)

    return count, function


def counted_in_memory():
    memory = memoryview(bytearray(1))

    def count():
        memory[0] += 1

    return count, lambda: memory[0]


def counted_in_tensor_of_a_function():
    def count():
        count.total = count.total + 1

    count.total = torch.zeros(())
    return count, lambda: count.total.item()


def counted_by_class():
    class Counted:
        n = 0

    instance = Counted()

    def count():
        instance.__class__ = type("Counted", (Counted,), {"n": instance.n + 1})

    return count, lambda: instance.n


@pytest.mark.parametrize(
    "make",
    [
        counted_in_counter,
        counted_in_weak_set,
        counted_in_thread_local,
        counted_in_defaults,
        counted_in_memory,
        counted_in_tensor_of_a_function,
        counted_by_class,
    ],
)
@pytest.mark.filterwarnings("ignore:graph")
def test_a_count_goes_on_by_one_in_each_call_whether_it_has_a_program_or_not(make):
    count, counted = make()

    def step(x, branches):
        count()
        return x + 1 if branches and x.sum().item() > 0 else x

    graph = graph_of(step)
    for n, branches in enumerate((True, False, True, True, False)):
        graph(torch.ones(2), branches)
        assert counted() == n + 1


def test_changes_are_taken_back_if_only_the_result_has_no_place_in_a_program():
    layer, seen = nn.Linear(2, 2), []

    def step(x):
        seen.append(x.sum())
        layer.register_forward_hook(lambda module, args, output: output + 1)
        return layer(x), iter([1])

    graph, x = graph_of(step), torch.ones(2)
    for calls in (1, 2):
        result, _ = graph(x)
        assert [type(value) for value in seen] == [torch.Tensor] * calls
        assert len(layer._forward_hooks) == calls
        assert torch.equal(result, torch.nn.functional.linear(x, layer.weight, layer.bias) + 1 + (calls - 1))


def test_a_hook_that_a_capture_removes_is_there_again_before_the_call_runs():
    layer, calls = nn.Linear(2, 2), []
    pair = []

    def hook(module, args, output):
        calls.append(output)
        while pair:
            pair.pop().remove()
        return output * 2

    pair.append(layer.register_forward_hook(hook))
    pair.append(layer.register_forward_hook(lambda module, args, output: output + 1))

    def step(x):
        out = layer(x)
        return out if out.sum().item() != 0 else -out

    graph, x = graph_of(step), torch.ones(2)
    plain = torch.nn.functional.linear(x, layer.weight, layer.bias)
    assert torch.equal(graph(x), plain * 2 + 1)
    assert torch.equal(graph(x), plain)
    assert len(calls) == 1 and torch.equal(calls[0], plain)


def test_a_cache_that_the_first_call_fills_costs_one_more_capture_and_no_call_in_eager_mode():
    cache = {}

    def step(x):
        if "table" not in cache:
            cache["table"] = [1.0, 2.0]
        return x * cache["table"][1]

    graph = graph_of(step)
    for _ in range(4):
        assert graph(torch.ones(2)).tolist() == [2.0, 2.0]
    assert graph.program is not None
    assert "calls in eager mode" not in graph.explain()


def test_a_write_of_the_same_value_needs_no_repetition_and_is_repeated_if_somebody_resets_it():
    class Flag:
        on = None

    flag = Flag()

    def step(x):
        flag.on = True
        return x + 1

    graph = graph_of(step)
    for _ in range(3):
        graph(torch.ones(2))
    program = graph.program
    graph(torch.ones(2))
    assert graph.program is program
    flag.on = False
    graph(torch.ones(2))
    assert flag.on is True


def test_captures_become_rarer_while_calls_run_in_eager_mode(monkeypatch):
    from oneflow._graph.capture.capture import Capture

    captures, run = [], Capture.run
    monkeypatch.setattr(Capture, "run", lambda self: captures.append(1) or run(self))
    graph = graph_of(lambda x: x if x.sum() > 0 else -x)
    for _ in range(100):
        graph(torch.ones(2))
    assert len(captures) <= 8


def test_a_call_that_a_program_can_hold_gets_one_after_calls_in_eager_mode():
    looks = [True]

    def step(x):
        return x * 2 if looks[0] and x.sum().item() > 0 else x * 3

    graph = graph_of(step)
    x = torch.ones(2)
    assert graph(x).tolist() == [2.0, 2.0]
    looks[0] = False
    for _ in range(10):
        assert graph(x).tolist() == [3.0, 3.0]
    assert graph.program is not None


@pytest.mark.parametrize(
    ("argument", "result"),
    [
        (torch.relu, [1.0, 0.0]),
        (functools.partial(torch.mul, torch.tensor([2.0, 3.0])), [2.0, -3.0]),
        (nn.ReLU(), [1.0, 0.0]),
        (nn.ReLU, [1.0, 0.0]),
        (iter([2.0, 3.0]), [2.0, -2.0]),
        (np.array([2.0, 3.0], dtype=np.float32), [2.0, -3.0]),
        (np.float32(2), [2.0, -2.0]),
        ({"a": 2.0}.values(), [2.0, -2.0]),
        (range(2, 3), [2.0, -2.0]),
        (torch.Generator(), [1.0, -1.0]),
        (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), [3.0, -3.0]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_arguments_of_any_type(argument, result):
    def step(x, value):
        if isinstance(value, type):
            value = value()
        if isinstance(value, torch.Tensor):
            return x * value.values().sum()
        if callable(value):
            return value(x)
        if isinstance(value, torch.Generator):
            return x
        if isinstance(value, np.ndarray):
            return x * torch.from_numpy(value)
        number = next(iter(value)) if not isinstance(value, np.float32) else value
        return x * float(number)

    assert graph_of(step)(torch.tensor([1.0, -1.0]), argument).tolist() == result


@pytest.mark.parametrize("make", [lambda x: (x * 2).numpy(), lambda x: torch.relu, lambda x: iter([1])])
def test_results_of_any_type(make):
    x = torch.ones(2)
    result, expected = graph_of(make)(x), make(x)
    assert type(result) is type(expected)
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(result, expected)


def test_arguments_keep_their_values_in_the_dialect_of_oneflow():
    def step(x, values):
        x.add_(1)
        values.append(x)
        return x * 2 if x.sum().item() > 0 else x

    x, values = torch.ones(2), [torch.zeros(1)]
    assert graph_of(step)(x, values).tolist() == [4.0, 4.0]
    assert x.tolist() == [1.0, 1.0]
    assert len(values) == 1


def test_a_returned_argument_that_build_writes_has_the_new_values():
    def step(x):
        x.add_(1)
        return x if x.sum().item() > 0 else -x

    x = torch.ones(2)
    assert graph_of(step)(x).tolist() == [2.0, 2.0]
    assert x.tolist() == [1.0, 1.0]


def test_a_graph_inside_a_graph_runs():
    inner = graph_of(lambda x: x * 2)
    outer = graph_of(lambda x: inner(x) + 1)
    for k in range(3):
        assert outer(torch.full((2,), float(k))).tolist() == [2.0 * k + 1] * 2
    assert inner.program is not None


def test_an_error_of_a_capture_inside_a_call_in_eager_mode_is_raised_once():
    inner, seen = graph_of(lambda x: x if x.sum() > 0 else -x, strict=True), []

    def step(x):
        seen.append(1)
        return inner(x)

    outer = graph_of(step)
    for calls in range(1, 4):
        with pytest.raises(OneFlowError, match="needs the value of a tensor"):
            outer(torch.ones(2))
        assert len(seen) == calls


def test_a_graph_under_grad_and_vmap():
    graph = graph_of(lambda x: (x**3).sum())
    x = torch.tensor([1.0, 2.0])
    assert torch.func.grad(graph)(x).tolist() == [3.0, 12.0]
    assert torch.func.vmap(graph)(torch.eye(2)).tolist() == [1.0, 1.0]


def test_guards_are_probed_outside_of_the_transforms_of_the_caller():
    graph = graph_of(lambda x: x * 2)
    native.probed_features.cache_clear()
    assert torch.func.vmap(graph)(torch.eye(2)).tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert torch.func.vmap(graph)(torch.eye(2)).tolist() == [[2.0, 0.0], [0.0, 2.0]]
    features = native.probed_features()
    native.probed_features.cache_clear()
    assert features == native.probed_features()


def test_a_cache_of_results_by_argument_answers_as_in_eager_mode():
    def step_of():
        squared = functools.lru_cache(lambda x: x**2)
        return lambda x: squared(x) + 1

    step, x = graph_of(step_of()), torch.ones(2)
    compiled, eager = flow.compile_step(step_of(), backend="aten"), step_of()
    for _ in range(3):
        assert compiled(x).tolist() == eager(x).tolist() == [2.0, 2.0]
        x += 1
    assert step(torch.full((2,), 3.0)).tolist() == [10.0, 10.0]


def test_a_step_of_an_optimizer_inside_build():
    model = net()
    twin = copy.deepcopy(model)

    def training_step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    optimizer, other = (torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, twin))
    graph = graph_of(lambda x: training_step(model, optimizer, x))
    for seed, x in enumerate(inputs()):
        flow.manual_seed(seed)
        expected = training_step(twin, other, x)
        flow.manual_seed(seed)
        assert torch.equal(graph(x), expected)
    _assert_equal(model.state_dict(), twin.state_dict())


def test_a_lazy_layer_runs_and_the_next_call_has_a_program():
    layer = torch.nn.LazyLinear(2)

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def build(self, x):
            return self.layer(x)

    graph, x = Step(), torch.ones(1, 3)
    first = graph(x)
    assert torch.equal(graph(x), first)
    assert graph.program is not None


def test_a_lazy_layer_that_is_no_part_of_the_graph_runs():
    layer = torch.nn.Sequential(torch.nn.LazyLinear(2))
    graph, x = graph_of(lambda x: layer(x)), torch.ones(1, 3)
    with pytest.warns(UserWarning, match="its module is a lazy one"):
        first = graph(x)
    assert torch.equal(first, layer(x))
    assert torch.equal(graph(x), first)
    assert graph.program is not None


def test_build_graph_says_what_no_program_holds():
    graph = graph_of(lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(OneFlowError, match=re.escape("x.sum() > 0")):
        graph.build_graph(torch.ones(2))


def test_saving_a_graph_without_a_program_says_why_it_has_none(tmp_path):
    graph = graph_of(lambda x: x if x.sum() > 0 else -x)
    graph(torch.ones(2))
    with pytest.raises(RuntimeError, match="ran in eager mode"):
        graph.save(tmp_path / "net")


def test_inference_graphs_of_several_modes():
    model = net()
    model.eval()

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, x):
            y = self.model(x)
            return y if y.sum().item() > -1e9 else -y

    x = inputs()[0]
    with torch.no_grad():
        expected = model(x)
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            result = Step()(x)
        assert torch.equal(result, expected)
        assert not result.requires_grad


@torch.library.custom_op("test_eager_calls::tripled", mutates_args=())
def tripled(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@torch.jit.script
def scripted(x: torch.Tensor):
    return x * 2 if bool(x.sum() > 2) else x * 3


def pickled(x):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file) * 2


def quantized(x):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("step", [tripled, scripted, pickled, quantized])
@pytest.mark.parametrize("compiled", [graph_of, functools.partial(flow.compile_step, backend="aten")])
def test_what_raises_only_for_symbolic_tensors_runs_with_one_warning(step, compiled):
    run = compiled(lambda x: step(x))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for value in (1.04, 0.33, 2.0):
            x = torch.tensor([value, 0.5])
            assert torch.equal(run(x), step(x))
    assert len([w for w in told if "runs in eager mode" in str(w.message)]) == 1


def test_an_error_that_eager_mode_raises_too_is_its_own_and_the_state_of_a_graph_is_as_before():
    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout()
            self.calls = []

        def build(self, x):
            self.calls.append(len(self.calls))
            return self.drop(self.norm(x)) @ torch.ones(7)

    step = Step()
    before, state = copy.deepcopy(step.state_dict()["norm"]), torch.get_rng_state()
    x = torch.randn(4, 3)
    torch.set_rng_state(state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="size") as raised:
            step(x)
    assert not isinstance(raised.value, OneFlowError) and raised.value.__cause__ is None
    assert all(torch.equal(before[k], v) for k, v in step.state_dict()["norm"].items())
    assert torch.equal(torch.get_rng_state(), state)
    assert step.calls == [0]


@pytest.mark.parametrize("compiled", [graph_of, functools.partial(flow.compile_step, backend="aten")])
def test_the_gradient_of_an_argument_is_read_in_eager_mode_and_stays(compiled):
    step = compiled(lambda x: x * 2 if x.grad is None else x.grad * 2)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    gradient = x.grad = torch.tensor([3.0, 4.0])
    with pytest.warns(UserWarning, match=r"x\.grad"):
        result = step(x)
    assert type(result) is torch.Tensor and result.tolist() == [6.0, 8.0]
    assert x.grad is gradient and gradient.tolist() == [3.0, 4.0]


class Key:
    """An object that a weak reference can refer to."""


def count_in_weak_table():
    keys, table = [Key() for _ in range(STEPS)], weakref.WeakKeyDictionary()

    def step(x, y):
        table[keys[len(table)]] = 1
        return x * len(table)

    return step


def set_of_arguments():
    return lambda *xs: xs[0] * len(set(xs))


def keys_of_dict():
    return lambda *xs: xs[0] * len(dict.fromkeys(xs))


@pytest.mark.parametrize("make", [count_in_weak_table, set_of_arguments, keys_of_dict])
@pytest.mark.parametrize("compiled", [graph_of, functools.partial(flow.compile_step, backend="aten")])
def test_a_step_that_counts_what_python_tells_apart(make, compiled):
    x, y = torch.ones(2), torch.ones(2)
    eager, run = make(), compiled(make())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args in ((x, y), (x, x), (x, y), (y, y)):
            assert torch.equal(run(*args), eager(*args))


def leave_dtype(x):
    torch.set_default_dtype(torch.float64)
    return x * torch.ones(2)


def leave_dtype_at_the_end(x):
    y = torch.ones(2)  # of the default dtype that the caller had
    torch.set_default_dtype(torch.float64 if torch.get_default_dtype() is torch.float32 else torch.float32)
    return y


def leave_grad_mode(x):
    torch.set_grad_enabled(False)
    return x * 2


def leave_determinism(x):
    torch.use_deterministic_algorithms(True)
    return x * 2


def toggle_warnings(x):
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=not warns)
    return x * 2


@pytest.mark.parametrize(
    "step", [leave_dtype, leave_dtype_at_the_end, toggle_warnings, leave_grad_mode, leave_determinism]
)
def test_a_setting_of_torch_that_build_leaves_changed_is_changed_after_the_call(step):
    def settings():
        return (
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )

    def as_at_start():
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch.use_deterministic_algorithms(False)

    try:
        expected, left = step(torch.ones(2)), settings()
        as_at_start()
        with pytest.warns(UserWarning, match="build\\(\\) leaves torch.* changed"):
            result = flow.compile_step(step, backend="aten")(torch.ones(2))
        assert settings() == left
        assert torch.equal(result, expected) and result.dtype == expected.dtype
    finally:
        as_at_start()


def append(values, x):
    values.append(x + 1)
    return x * len(values)


def update(values, x):
    values["new"] = x + 1
    return x * len(values)


@pytest.mark.parametrize(("step", "kind"), [(append, list), (update, dict)])
def test_lists_and_dicts_among_the_arguments_of_a_compiled_step_keep_its_changes(step, kind):
    run, x = flow.compile_step(step, backend="aten"), torch.ones(2)
    eager, compiled = kind(), kind()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert torch.equal(run(compiled, x), step(eager, x))
    assert len(compiled) == len(eager)
    assert repr(compiled) == repr(eager)


def with_attribute(x):
    out = x + 1
    out.scale = 3.0
    return out


def with_gradient(x):
    out = (x + 1).requires_grad_()
    (out * out).sum().backward()
    return out


def with_hook(x):
    out = (x + 1).requires_grad_()
    out.register_hook(lambda gradient: gradient * 2)
    return out


def a_parameter(x):
    return torch.nn.Parameter(x + 1)


def attribute_of_an_argument(x):
    x.scale = 3.0
    return x * x.scale


def trained_argument(x):
    return torch.autograd.grad((x.requires_grad_() ** 2).sum(), x)[0]


def hook_of_an_argument(x):
    x.requires_grad_().register_hook(lambda gradient: gradient * 2)
    return x.detach()


@pytest.mark.parametrize("step", [
    with_attribute, with_gradient, with_hook, a_parameter, attribute_of_an_argument, trained_argument,
    hook_of_an_argument,
], ids=lambda step: step.__name__)  # fmt: skip
def test_what_a_step_leaves_on_tensors_of_the_caller_is_what_eager_mode_leaves(step):
    compiled = flow.compile_step(step, backend="aten")

    def left(call):
        x = torch.ones(2)
        result = call(x)
        return [
            (type(t), t.requires_grad, t.grad, getattr(t, "scale", None), len(t._backward_hooks or ()))
            for t in (x, result)
        ]

    for _ in range(2):
        assert str(left(compiled)) == str(left(step))


def test_a_graph_does_not_lose_attributes_of_its_results():
    graph = graph_of(with_attribute)
    assert [graph(torch.ones(2)).scale for _ in range(2)] == [3.0, 3.0]
