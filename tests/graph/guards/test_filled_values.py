"""Values that build() fills in where it found none, and flags that it switches.

The first call finds something else than the later ones, so its program is for that call alone.
"""

import collections
import functools
import types
import warnings

import pytest
import torch
from torch import nn

import oneflow as flow

X = [torch.full((3,), float(i)) for i in range(1, 6)]


def first_call_by_flag(x, state):
    if not getattr(state, "done", False):
        state.done = True
        return x * 2
    return x * 3


def first_call_by_key(x, state):
    if "done" not in vars(state):
        vars(state)["done"] = 1
        return x * 2
    return x * 3


def first_call_by_object(x, state):
    if state.cache is None:
        state.cache = types.SimpleNamespace(scale=3.0)
        return x * 2
    return x * state.cache.scale


def first_call_by_key_of(name):
    def function(x, state):
        container = getattr(state, name)
        if "done" not in container:
            container["done"] = nn.Identity() if name == "modules" else 1
            return x * 2
        return x * 3

    return function


def first_call_by_size(x, state):
    if len(state.modules._modules) == 0:
        state.modules["done"] = nn.Identity()
        return x * 2
    return x * 3


def flag_switched_off(x, state):
    if state.first:
        state.first = False
        return x * 2
    return x * 3


def key_taken_out(x, state):
    return x * 2 if vars(state).pop("once", None) else x * 3


def count_in_missing_attribute(x, state):
    state.count = getattr(state, "count", 0) + 1
    return x * state.count


def count_in_missing_key(x, state):
    counts = vars(state)
    counts.setdefault("count", 0)
    counts["count"] += 1
    return x * counts["count"]


def count_from_none(x, state):
    state.cache = 1 if state.cache is None else state.cache + 1
    return x * state.cache


def count_after_exception(x, state):
    try:
        state.count += 1
    except AttributeError:
        state.count = 1
    return x * state.count


def new_state():
    containers = {
        "mapping": collections.UserDict(),
        "chain": collections.ChainMap({}),
        "modules": nn.ModuleDict(),
        "parameters": nn.ParameterDict(),
    }
    return types.SimpleNamespace(cache=None, first=True, once=True, **containers)


def graph_of(function):
    state = new_state()

    class Runs(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("aten")

        def build(self, x):
            return function(x, state)

    return Runs()


def eager_results(function):
    state = new_state()
    return [function(x, state) for x in X]


@pytest.mark.parametrize(
    "function",
    [
        first_call_by_flag,
        first_call_by_key,
        first_call_by_object,
        first_call_by_size,
        flag_switched_off,
        key_taken_out,
        *map(first_call_by_key_of, ("mapping", "chain", "modules", "parameters")),
    ],
)
def test_what_the_first_call_alone_does_is_followed(function):
    graph = graph_of(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counts = []
        for x, expected in zip(X, eager_results(function)):
            assert torch.equal(graph(x), expected)
            counts.append(len(graph._engine.programs))
    assert counts[1] == counts[-1] <= 2, "later calls share one program"


@pytest.mark.parametrize(
    "function", [count_in_missing_attribute, count_in_missing_key, count_from_none, count_after_exception]
)
def test_a_counter_that_build_starts_is_announced(function):
    graph, expected = graph_of(function), eager_results(function)
    assert torch.equal(graph(X[0]), expected[0])
    with pytest.warns(UserWarning, match="reads and then changes itself"):
        assert torch.equal(graph(X[1]), expected[1])


def test_the_reason_for_the_second_program_is_explained():
    graph = graph_of(first_call_by_object)
    graph(X[0]), graph(X[1])
    assert "cache" in str(graph.explain())


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adagrad])
def test_a_flag_that_a_fused_step_switches_off_is_followed(optimizer):
    """In its first step torch tests the devices of the parameters, and sets
    _need_device_dtype_check_for_fused.
    """
    models = [nn.Linear(3, 2), nn.Linear(3, 2)]
    models[1].load_state_dict(models[0].state_dict())
    eager, fused = (optimizer(model.parameters(), lr=0.1, fused=True) for model in models)

    class Trains(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = models[1]
            self.add_optimizer(fused)
            self.config.set_backend("aten")

        def build(self, x):
            loss = self.model(x).sum()
            loss.backward()
            return loss

    graph = Trains()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in X:
            eager.zero_grad()
            loss = models[0](x).sum()
            loss.backward()
            eager.step()
            assert torch.equal(graph(x), loss)
    assert len(graph._engine.programs) == 1


def test_later_calls_share_one_program_with_a_cached_property():
    class Scales:
        @functools.cached_property
        def third(self):
            return 3.0

    scales = Scales()

    class Scaled(flow.nn.Graph):
        def build(self, x):
            return x * scales.third

    graph = Scaled()
    for x in X:
        assert torch.equal(graph(x), x * 3.0)
    assert len(graph._engine.programs) == 1


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adagrad, flow.optim.SGD])
def test_what_an_optimizer_of_torch_marks_for_itself_needs_no_second_program(optimizer):
    module = torch.nn.Linear(3, 2)

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module
            self.add_optimizer(optimizer(module.parameters(), lr=0.1))

        def build(self, x):
            loss = self.module(x).square().mean()
            loss.backward()
            return loss

    graph = Step()
    for _ in range(3):
        graph(torch.ones(4, 3))
    assert str(graph.explain()).startswith(f"graph {graph.name}: 1 program")
    assert "another program" not in str(graph.explain())
