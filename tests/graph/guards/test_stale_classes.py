"""A graph follows attributes that an object gets from its class, and caches, patterns and views of bytes."""

import functools
import re
import types
import warnings

import pytest
import torch
from stale_cases import Base, assert_change_is_followed, graph_of
from torch import nn

import oneflow as flow


class Scale:
    def __init__(self, k=1.0):
        self.k = k

    def __mul__(self, other):
        return Scale(self.k * other)

    def __bool__(self):
        return self.k > 0


def own_class(base=Scale):
    """A class of this call, so that a test may change it."""
    return type("Own", (base,), {"__mul__": base.__mul__, "__bool__": base.__bool__})


@pytest.mark.parametrize("name, function, changed", [
    ("__mul__", lambda m, y: y * (m.scale * 2.0).k, lambda self, other: Scale(5.0)),
    ("__bool__", lambda m, y: y * (2 if m.scale else 1), lambda self: False),
], ids=["operator", "truth"])  # fmt: skip
def test_a_replaced_special_method_is_followed(name, function, changed):
    cls = own_class()

    assert_change_is_followed(Base(function, scale=cls()), lambda m: setattr(cls, name, changed))


class First:
    k = 1.0


class Second:
    k = 3.0


def test_other_bases_of_a_class_are_followed():
    cls = type("Child", (First,), {})
    assert_change_is_followed(
        Base(lambda m, y: y * m.holder.k, holder=cls()), lambda m: setattr(cls, "__bases__", (Second,))
    )


def test_an_attribute_of_a_metaclass_is_followed():
    meta = type("Meta", (type,), {"k": 1.0})
    cls = meta("WithMeta", (), {})
    assert_change_is_followed(Base(lambda m, y: y * cls.k), lambda m: setattr(meta, "k", 3.0))


@pytest.mark.parametrize("bound", [False, True])
def test_an_attribute_of_a_function_is_followed(bound):
    def step():
        pass

    step.k = 1.0
    held = types.MethodType(step, object()) if bound else step
    assert_change_is_followed(Base(lambda m, y: y * held.k), lambda m: setattr(step, "k", 3.0))


class Settings(dict):
    __getattr__ = dict.__getitem__


@pytest.mark.parametrize("change", [
    lambda m: m.settings.update(k=3.0),
    lambda m: setattr(m, "settings", Settings(k=3.0)),
], ids=["element", "other dict"])  # fmt: skip
def test_attributes_that_are_elements_of_a_dict_are_followed(change):
    assert_change_is_followed(Base(lambda m, y: y * m.settings.k, settings=Settings(k=1.0)), change)


@pytest.mark.parametrize(
    "value, function, change",
    [
        (
            lambda: memoryview(bytearray(b"ab")),
            lambda m, y: y * m.value[0],
            lambda m: m.value.__setitem__(0, 99),
        ),
        (
            lambda: re.compile("a+"),
            lambda m, y: y * len(m.value.findall("aabaa")),
            lambda m: setattr(m, "value", re.compile("b+")),
        ),
    ],
    ids=["memoryview", "pattern"],
)
def test_bytes_and_patterns_are_followed(value, function, change):
    assert_change_is_followed(Base(function, value=value()), change)


def test_an_equal_pattern_makes_no_program():
    module = Base(lambda m, y: y * len(m.value.findall("aabaa")), value=re.compile("a+"))
    graph, _ = graph_of(module)
    graph(torch.ones(2, 4))
    re.purge()
    module.value = re.compile("a+")
    graph(torch.ones(2, 4))
    assert len(graph._engine.programs) == 1


class Number(float):
    k = 1.0

    def times(self):
        return float(self) * self.k


def number_with(k):
    value = Number(1.0)
    value.k = k
    return value


def test_an_equal_number_with_another_attribute_is_followed():
    module = Base(lambda m, y: y * m.value.times(), value=number_with(2.0))
    assert_change_is_followed(module, lambda m: setattr(m, "value", number_with(3.0)))


def test_a_cleared_cache_is_followed():
    """The second graph takes the value from the cache, so that it reads none of what the function reads."""
    scale = types.SimpleNamespace(k=1.0)

    @functools.lru_cache
    def cached():
        return scale.k

    module, x = Base(lambda m, y: y * cached()), torch.randn(2, 4)
    cached()
    graph, eager = graph_of(module)
    assert torch.equal(graph(x), eager(x))
    scale.k = 3.0
    assert torch.equal(graph(x), eager(x))  # as in eager, the cache keeps its value
    cached.cache_clear()
    assert torch.equal(graph(x), eager(x))
    assert len(graph._engine.programs) == 2


@pytest.mark.parametrize("cache", [functools.lru_cache, functools.cache, functools.lru_cache(typed=True)])
@pytest.mark.parametrize("call", [
    lambda cached: cached(2.0),
    lambda cached: cached(factor=2.0),
    lambda cached: cached(*(2.0,)),
    lambda cached: sum(map(cached, (2.0,))),
], ids=["position", "keyword", "unpacked", "map"])  # fmt: skip
def test_a_cleared_cache_that_is_filled_again_is_followed(cache, call):
    """Other calls of the function do not hide that its cache was cleared."""
    scale = types.SimpleNamespace(k=1.0)

    @cache
    def cached(factor):
        return scale.k * factor

    module, x = Base(lambda m, y: y * call(cached)), torch.randn(2, 4)
    call(cached)
    graph, eager = graph_of(module)
    assert torch.equal(graph(x), eager(x))
    scale.k = 3.0
    cached.cache_clear()
    for _ in range(3):
        call(cached)
    assert torch.equal(graph(x), eager(x))
    assert len(graph._engine.programs) == 2


def test_a_cleared_cache_of_a_method_is_followed():
    class Table:
        k = 1.0

        @functools.lru_cache  # noqa: B019 the table lives as long as the test
        def scale(self):
            return self.k

    table, x = Table(), torch.randn(2, 4)
    module = Base(lambda m, y: y * table.scale())
    table.scale()
    graph, eager = graph_of(module)
    assert torch.equal(graph(x), eager(x))
    table.k = 3.0
    Table.scale.cache_clear()
    table.scale()
    assert torch.equal(graph(x), eager(x))


def test_results_that_a_cache_adds_later_make_no_program():
    @functools.lru_cache
    def cached(factor):
        return factor * 2.0

    module, x = Base(lambda m, y: y * cached(1.0)), torch.randn(2, 4)
    cached(1.0)
    graph, eager = graph_of(module)
    for factor in range(5):
        assert torch.equal(graph(x), eager(x))
        cached(float(factor + 2))
    assert len(graph._engine.programs) == 1


def test_a_function_registered_for_a_class_is_followed():
    """The second graph takes the function from the cache of singledispatch."""

    @functools.singledispatch
    def scale(value):
        return 1.0

    scale(1)
    assert_change_is_followed(
        Base(lambda m, y: y * scale(1)), lambda m: scale.register(int, lambda value: 3.0)
    )


def test_a_change_beside_a_replaced_tensor_is_followed():
    """The program continues with the new tensor, whose location is tested before the class."""

    class Holder:
        k = 1.0

    module = Base(lambda m, y: y * m.tensor * m.holder.k, tensor=torch.ones(4), holder=Holder())
    graph, eager = graph_of(module)
    x = torch.randn(2, 4)
    graph(x)
    module.tensor = torch.full((4,), 2.0)
    Holder.k = 3.0
    assert torch.equal(graph(x), eager(x))


def test_an_iterator_of_a_list_is_named():
    values = iter([1.0, 2.0, 3.0])
    graph, _ = graph_of(Base(), lambda m, x: m(x) * next(values))
    with pytest.warns(UserWarning, match=r"next\(values\).*an iterator"):
        graph(torch.ones(2, 4))


def test_an_iterator_that_build_makes_is_not_named():
    def body(module, x):
        steps = iter([1.0, 2.0])
        return module(x) * next(steps) * sum(iter((1.0, 2.0)))

    graph, eager = graph_of(Base(), body)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(graph(torch.ones(2, 4)), eager(torch.ones(2, 4)))


def training(model, optimizer, schedule=None):
    class Training(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer, lr_sch=schedule)
            self.config.set_backend("aten")

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    return Training()


def test_state_of_an_optimizer_with_a_schedule_may_be_cleared():
    torch.manual_seed(0)
    results = []
    x = torch.randn(3, 4)
    for graph_mode in (True, False):
        torch.manual_seed(1)
        model = nn.Linear(4, 4)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        graph = training(model, optimizer, schedule) if graph_mode else None
        for step in range(4):
            if step == 2:
                optimizer.state.clear()
            if graph_mode:
                graph(x)
            else:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
                schedule.step()
        results.append(model.weight.detach().clone())
    assert torch.equal(*results)


@pytest.mark.parametrize("change", [
    lambda model: setattr(model, "bias", None),
    lambda model: setattr(model, "weight", nn.Parameter(model.weight.detach() * 2)),
    lambda model: nn.utils.parametrizations.weight_norm(model),
], ids=["no bias", "another weight", "weight norm"])  # fmt: skip
def test_a_change_of_the_model_beside_a_replaced_state_is_followed(change):
    """The program can read the new state of the optimizer, but not the changed model."""
    results = []
    for graph_mode in (True, False):
        torch.manual_seed(1)
        model, x = nn.Linear(4, 4), torch.ones(3, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        graph = training(model, optimizer) if graph_mode else None
        for step in range(4):
            if step == 2:
                optimizer.load_state_dict(optimizer.state_dict())
                change(model)
            if graph_mode:
                graph(x)
            else:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        results.append([p.detach().clone() for p in model.parameters()])
    assert all(map(torch.equal, *results))


def test_state_of_a_parameter_that_left_the_model_and_the_optimizer_stays():
    results = []
    for graph_mode in (True, False):
        torch.manual_seed(1)
        model, x = nn.Linear(4, 4), torch.ones(3, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        graph = training(model, optimizer) if graph_mode else None
        for step in range(4):
            if step == 2:
                bias = optimizer.param_groups[0]["params"].pop()
                model.bias = None
            if graph_mode:
                graph(x)
            else:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        results.append([model.weight.detach(), optimizer.state[bias]["momentum_buffer"]])
    assert all(map(torch.equal, *results))


def test_an_error_in_the_first_step_leaves_the_optimizer_as_it_was():
    def stop(*_):
        raise ValueError("stop")

    results, x = [], torch.ones(3, 4)
    for graph_mode in (True, False):
        torch.manual_seed(1)
        model = nn.Linear(4, 4)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        if graph_mode:
            graph, handle = training(model, optimizer), optimizer.register_step_pre_hook(stop)
            with pytest.raises(ValueError, match="stop"):
                graph(x)
            assert not optimizer.state and all(p.grad is None for p in model.parameters())
            handle.remove()
        for _ in range(2):
            if graph_mode:
                graph(x)
            else:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        results.append(model.weight.detach())
    assert torch.equal(*results)


def test_lstm_beside_a_sparse_matrix():
    """oneDNN's LSTM needs gradients enabled, and operators of sparse tensors need them disabled."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.sparse = nn.LSTM(4, 4), torch.eye(4).to_sparse()

        def forward(self, x):
            return torch.sparse.mm(self.sparse, self.cell(x)[0].T).T

    results = []
    for graph_mode in (True, False):
        torch.manual_seed(0)
        model, x = Both(), torch.randn(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        graph = training(model, optimizer) if graph_mode else None
        for _ in range(2):
            if graph_mode:
                graph(x)
            else:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        results.append([p.detach().clone() for p in model.parameters()])
    assert all(map(torch.equal, *results))
