"""Functions and classes that a caller makes anew for each call, in an object among the arguments."""

import types
import warnings

import pytest
import torch

import oneflow as flow

X = torch.ones(2)


class Calls(flow.nn.Graph):
    def __init__(self):
        super().__init__()
        self.config.set_backend("aten")

    def build(self, x, options):
        return options.function(x)


def call(graph, function):
    return graph(X, types.SimpleNamespace(function=function))


def plain():
    return lambda x: x * 2


def with_a_variable(k):
    return lambda x: x * k


def with_defaults(k):
    def function(x, factor=k, *, offset=1.0):
        return x * factor + offset

    return function


def test_equal_functions_share_a_program():
    for make in (plain, lambda: with_a_variable(2.0), lambda: with_defaults((2, 3)[0])):
        graph = Calls()
        for _ in range(4):
            function = make()
            assert torch.equal(call(graph, function), function(X))
        assert len(graph._engine.programs) == 1


@pytest.mark.parametrize("make", [with_a_variable, with_defaults])
def test_other_values_make_another_program(make):
    graph = Calls()
    for k in (2, 3, 2.0, True, 2, -0.0, 0.0):
        function = make(k)
        assert torch.equal(call(graph, function), function(X)), k
        assert call(graph, function).dtype == function(X).dtype


def test_a_variable_that_is_assigned_later():
    def made():
        k = 2.0

        def change(value):
            nonlocal k
            k = value

        return lambda x: x * k, change

    graph = Calls()
    one, change_one = made()
    other, change_other = made()
    assert call(graph, one).tolist() == call(graph, other).tolist() == [2, 2]
    change_other(5.0)
    assert (call(graph, one)[0], call(graph, other)[0]) == (2, 5)
    change_one(7.0)
    assert (call(graph, one)[0], call(graph, other)[0]) == (7, 5)


def test_functions_that_count_or_hold_objects_stay_apart():
    def counting():
        n = 0

        def function(x):
            nonlocal n
            n += 1
            return x * 2

        return function, lambda: n

    graph = Calls()
    for _ in range(3):
        function, count = counting()
        call(graph, function), call(graph, function)
        assert count() == 2
    graph = Calls()
    for k in range(1, 4):
        assert call(graph, held(k))[0] == k


def classes(base):
    class Local(base):
        def __call__(self, x):
            return x * 2

    return Local()


def held(k):
    values = [k]
    return lambda x: x * values[0]


@pytest.mark.parametrize("make", [lambda: classes(object), lambda: held(2)], ids=["class", "function"])
def test_code_that_is_made_anew_for_each_call_is_named_once(make):
    graph = Calls()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(12):
            call(graph, make())
    texts = [str(w.message) for w in told]
    assert len(texts) == 1 and (
        "class classes.<locals>.Local" in texts[0] or "function held.<locals>" in texts[0]
    )


def test_one_function_and_many_sizes_are_not_named():
    graph, options = Calls(), types.SimpleNamespace(function=held(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in range(2, 12):
            graph(torch.ones(size), options)
