"""Objects that build() makes in each call, fills in, and leaves somewhere. One program serves all calls."""

import functools
import types
import warnings
import weakref

import pytest
import torch
from torch import nn

import oneflow as flow

X = torch.ones(3)


class Keep:
    """It fills in an option that is missing."""

    def __init__(self, options):
        if "scale" not in options:
            options["scale"] = 2
        self.options = options


def in_a_list(state, x):
    state.list[:] = [Keep({"other": 1})]
    return x * state.list[0].options["scale"]


def in_an_attribute(state, x):
    options = {"other": 1}
    if "scale" not in options:
        options["scale"] = 2
    state.options = options
    return x * options["scale"]


def with_objects(state, x):
    keep = Keep({"other": [torch.float32], "names": {}})
    keep.options["names"].setdefault("scale", []).append(3)
    state.list.append(keep)
    return x * keep.options["names"]["scale"][0]


def a_flag(state, x):
    run = types.SimpleNamespace(done=False, first=None)
    if not run.done:
        run.done, run.first = True, 2
    state.run = run
    return x * run.first


def a_module(state, x):
    model = nn.Sequential(nn.Identity())
    if not hasattr(model, "scale"):
        model.scale = 2
    state.list.append(model)
    return model(x) * model.scale


def graph_of(function, state):
    class Makes(flow.nn.Graph):
        def build(self, x):
            return function(state, x)

    graph = Makes()
    graph.config.set_backend("aten")
    return graph


def state():
    return types.SimpleNamespace(list=[], table={}, weak=weakref.WeakKeyDictionary(), key=Keep({}))


@pytest.mark.parametrize(
    "function",
    [in_a_list, in_an_attribute, with_objects, a_flag, a_module],
    ids=lambda function: function.__name__,
)
def test_what_build_fills_in_an_object_of_its_own(function):
    graph, eager = graph_of(function, state()), state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            assert torch.equal(graph(X), function(eager, X))
    assert len(graph._engine.programs) == 1 and graph._engine.last_entry.serves_later_calls, graph.explain()
    assert "changed from" not in str(graph.explain())


def from_a_cache_of_a_function(make):
    def function(state, x):
        options = make()
        if "scale" not in options:
            options["scale"] = 3
            return x * 2
        return x * options["scale"]

    return function


def made_by_lru_cache():
    return functools.lru_cache(maxsize=2)(lambda: {"other": 1})


def made_by_cache():
    return functools.cache(lambda: {"other": {}})


def in_an_object_of_a_cache():
    make = functools.cache(lambda: types.SimpleNamespace(options={"other": []}))
    return lambda: make().options


def in_a_table(state, x):
    options = state.table.setdefault("options", {"other": []})
    if "scale" not in options:
        options["scale"] = 3
        return x * 2
    return x * options["scale"]


def in_a_weak_table(state, x):
    if state.key not in state.weak:
        state.weak[state.key] = {"other": []}
    options = state.weak[state.key]
    if "scale" not in options:
        options["scale"] = 3
        return x * 2
    return x * options["scale"]


class Lazy:
    @functools.cached_property
    def options(self):
        return {"other": []}


def in_a_cached_property(state, x):
    options = vars(state).setdefault("lazy", Lazy()).options
    if "scale" not in options:
        options["scale"] = 3
        return x * 2
    return x * options["scale"]


@pytest.mark.parametrize(
    "make_function",
    [
        lambda: from_a_cache_of_a_function(made_by_lru_cache()),
        lambda: from_a_cache_of_a_function(made_by_cache()),
        lambda: from_a_cache_of_a_function(in_an_object_of_a_cache()),
        lambda: in_a_table,
        lambda: in_a_weak_table,
        lambda: in_a_cached_property,
    ],
    ids=["lru_cache", "cache", "object of a cache", "table", "weak table", "cached property"],
)
def test_what_build_fills_in_an_object_that_the_next_call_meets(make_function):
    function, eager = make_function(), state()
    expected = [function(eager, X) for _ in range(3)]
    graph = graph_of(make_function(), state())
    for result in expected:
        assert torch.equal(graph(X), result)


@pytest.mark.eager_calls
@pytest.mark.parametrize("function, more", [(in_a_list, 1), (in_an_attribute, 0)], ids=["list", "attribute"])
def test_what_outlives_the_call_costs_at_most_one_more_program(function, more):
    """A list may cost one, because build() fills in what was empty. A new value of an attribute is stored."""
    graph, eager = graph_of(function, state()), state()
    captures = []
    graph._engine.config.on_change = captures.append
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(6):
            assert torch.equal(graph(X), function(eager, X))
    assert len(graph._engine.programs) == 1 and graph._engine.last_entry.serves_later_calls, graph.explain()
    assert len(captures) == more
    assert all("build() changes: changed; another program" in str(capture) for capture in captures)
