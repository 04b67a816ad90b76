"""Counters: numbers that build() only counts. One program serves all calls, and each call counts."""

import contextlib
import operator
import types
import warnings

import pytest
import torch
from torch import nn

import oneflow as flow

X = torch.ones(2, 2)


@pytest.fixture(params=["a program is needed", pytest.param("eager calls", marks=pytest.mark.eager_calls)])
def both_kinds_of_calls(request):
    """Users have calls in eager mode, under which a program that misses a change serves one call."""


class Counting(nn.Module):
    """A linear layer with a counter; `count(self)` counts."""

    def __init__(self, count):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.total, self.stats, self.log = 0, {"calls": 0}, types.SimpleNamespace(n=0, t=0.1)
        self.list = [0, 0]
        self.count = count

    def forward(self, x):
        self.seen = x
        self.count(self)
        return self.linear(x)


class Slotted:
    __slots__ = ("n",)

    def __init__(self):
        self.n = 0


def by_one(module):
    module.total += 1


def by_constants(module):
    module.total += 3
    module.total -= 5


def written_out(module):
    module.total = module.total + 2


def float_steps(module):
    """0.1 + 0.1 + 0.7 rounds after each step."""
    module.log.t += 0.1
    module.log.t += 0.7
    module.log.t *= 1.1


def in_a_dict(module):
    module.stats["calls"] += 1


def in_a_list(module):
    module.list[1] += 1


def in_an_object(module):
    module.log.n += 1
    module.log.n += 1


def by_a_size(module):
    module.total += module.seen.shape[0]
    module.stats["calls"] += len(module.seen) * 3 - module.linear.in_features
    module.log.t += module.seen.size(1) / 3


def in_several(module):
    by_one(module), in_a_dict(module), in_an_object(module), float_steps(module)


def state_of(module):
    return module.total, module.stats, vars(module.log), module.list


def graph_of(function):
    class Counts(flow.nn.Graph):
        def build(self, x):
            return function(x)

    graph = Counts()
    graph.config.set_backend("aten")
    return graph


def assert_counts(eager, graph_function, states, calls=5):
    """Call a function in eager mode and in a graph: equal results and counters, one program, no warning."""
    graph = graph_of(graph_function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(calls):
            assert torch.equal(graph(X), eager(X).detach())
            assert states[0]() == states[1]()
    assert len(graph._engine.programs) == 1, graph.explain()
    return graph


def twins(count):
    modules = [Counting(count), Counting(count)]
    modules[1].load_state_dict(modules[0].state_dict())
    return modules


@pytest.mark.usefixtures("both_kinds_of_calls")
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "count",
    [
        by_one,
        by_constants,
        written_out,
        float_steps,
        in_a_dict,
        in_a_list,
        in_an_object,
        by_a_size,
        in_several,
    ],
    ids=lambda function: function.__name__,
)
def test_each_call_counts_in_one_program(count, times):
    eager, module = twins(count)

    def called(module, x):
        for _ in range(times):
            x = module(x)
        return x

    assert_counts(
        lambda x: called(eager, x),
        lambda x: called(module, x),
        [lambda: state_of(eager), lambda: state_of(module)],
    )


@pytest.mark.usefixtures("both_kinds_of_calls")
def test_a_counter_of_a_nested_module_of_the_graph_counts_in_one_program():
    eager, module = twins(by_one)

    class Holds(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = nn.Sequential(module, nn.ReLU())
            self.calls = 0

        def build(self, x):
            self.calls += 1
            return self.model(x)

    graph = Holds()
    for call in range(1, 5):
        assert torch.equal(graph(X), eager(X).relu().detach())
        assert (module.total, graph.calls) == (eager.total, call)
    assert len(graph._engine.programs) == 1, graph.explain()


@pytest.mark.usefixtures("both_kinds_of_calls")
def test_a_counter_of_sizes_needs_a_program_for_each_size_only():
    eager, module = twins(lambda module: setattr(module, "seen", None))

    def counts(module, x):
        module.total += x.shape[0] * 2
        return module.linear(x)

    graph = graph_of(lambda x: counts(module, x))
    for size in (2, 3, 4, 5, 2, 3, 4, 5, 5, 2):
        x = torch.randn(size, 2)
        assert torch.equal(graph(x), counts(eager, x).detach())
        assert module.total == eager.total
    assert len(graph._engine.programs) <= 4, graph.explain()


class ThroughTheGraph(flow.nn.Graph):
    """Counts in the attributes of its modules, which are proxies here."""

    def __init__(self, module):
        super().__init__()
        self.model = nn.Sequential(module)
        self.config.set_backend("aten")

    def build(self, x):
        self.model[0].total += 1
        self.model[0].total += x.shape[0]
        self.model[0].log.n += 1
        return self.model(x)


def test_a_counter_that_is_reached_through_the_graph():
    eager, module = twins(by_one)
    graph = ThroughTheGraph(module)
    for call in range(1, 5):
        assert torch.equal(graph(X), eager(X).detach())
        assert (module.total, module.log.n) == (4 * call, call)
    assert len(graph._engine.programs) == 1, graph.explain()


@pytest.mark.parametrize("read", [lambda m: m.total, operator.attrgetter("total")])
def test_a_counter_that_decides_through_the_graph_is_followed(read):
    module = Counting(by_one)

    class Decides(ThroughTheGraph):
        def build(self, x):
            self.model[0].total += 1
            return x * 2 if read(self.model[0]) > 2 else x * 3

    graph = Decides(module)
    assert [graph(X)[0, 0].item() for _ in range(4)] == [3, 3, 2, 2]
    assert module.total == 4


class Entangled(nn.Module):
    """Counters whose steps depend on other counters, change the counter themselves, or fail."""

    def __init__(self):
        super().__init__()
        self.nested, self.sum, self.step, self.failed = 0, 0, 0, 0

    def recurse(self, depth):
        if depth:
            self.nested += self.recurse(depth - 1)
        return 1

    def fail(self):
        raise ValueError

    def forward(self, x):
        self.recurse(2)
        self.sum += self.step
        self.step += 1
        with contextlib.suppress(ValueError):
            self.failed += self.fail()
        return x * (self.sum + 1)


def test_counters_whose_steps_depend_on_more_than_the_call():
    eager, module = Entangled(), Entangled()
    graph = graph_of(module)
    for _ in range(5):
        assert torch.equal(graph(X), eager(X))
        names = "nested", "sum", "step", "failed"
        assert [getattr(module, name) for name in names] == [getattr(eager, name) for name in names]


GLOBAL = 0


@pytest.mark.usefixtures("both_kinds_of_calls")
def test_counters_in_a_global_a_closure_and_a_slot_count_in_one_program():
    global GLOBAL
    slotted, local, GLOBAL = Slotted(), 0, 0

    def counts(x):
        global GLOBAL
        nonlocal local
        GLOBAL += 1
        local += 2
        slotted.n += 3
        return x * 2

    graph = graph_of(counts)
    for call in range(1, 5):
        graph(X)
        assert (GLOBAL, local, slotted.n) == (call, 2 * call, 3 * call)
    assert len(graph._engine.programs) == 1, graph.explain()


@pytest.mark.usefixtures("both_kinds_of_calls")
def test_a_counter_that_is_set_between_calls():
    eager, module = twins(by_one)
    graph = graph_of(module)
    for value in (0, 7, 7, -2):
        module.total = value
        graph(X)
        assert module.total == value + 1
    assert len(graph._engine.programs) == 1, graph.explain()
    module.total = 0.5
    graph(X)
    assert module.total == 1.5
    module.total = torch.zeros(())
    graph(X), graph(X)
    assert module.total.item() == 2
    del module.total
    with pytest.raises(AttributeError, match="total"):
        graph(X)


@pytest.mark.usefixtures("both_kinds_of_calls")
def test_a_replaced_object_counts_from_then_on():
    module = Counting(in_an_object)
    graph, before = graph_of(module), module.log
    graph(X), graph(X)
    module.log = types.SimpleNamespace(n=10, t=0.1)
    graph(X), graph(X)
    assert (before.n, module.log.n) == (4, 14)


def test_an_object_with_two_names_of_which_one_is_replaced():
    first = types.SimpleNamespace(n=0)
    holder = types.SimpleNamespace(a=first, b=first)

    def counts(x):
        holder.a.n += 1
        holder.b.n += 10
        return x * 2

    graph = graph_of(counts)
    graph(X)
    holder.a = types.SimpleNamespace(n=0)
    graph(X), graph(X)
    assert (holder.a.n, holder.b.n) == (2, 31)


def test_a_counter_that_decides_is_no_such_counter():
    eager, module = twins(by_one)

    def scaled(module, x):
        return module(x) * (2 if module.total > 2 else 1)

    graph = graph_of(lambda x: scaled(module, x))
    for _ in range(4):
        assert torch.equal(graph(X), scaled(eager, X).detach())
    assert module.total == eager.total


def test_a_counter_that_is_also_assigned():
    eager, module = twins(lambda module: (by_one(module), setattr(module, "total", 1)))
    graph = graph_of(module)
    for _ in range(4):
        graph(X), eager(X)
        assert module.total == eager.total == 1


class Clamped:
    n = property(lambda self: self._n, lambda self, value: setattr(self, "_n", min(value, 3)))

    def __init__(self):
        self._n = 0


class Watched:
    """Its __setattr__ does more than to set."""

    def __init__(self):
        self.n = 0

    def __setattr__(self, name, value):
        object.__setattr__(self, name, min(value, 3))


@pytest.mark.parametrize("cls", [Clamped, Watched])
def test_a_class_that_decides_what_is_set(cls):
    module = nn.Identity()
    module.log = cls()

    def counts(x):
        module.log.n += 1
        return x * 2

    graph = graph_of(counts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            graph(X)
    assert module.log.n <= 3


def test_a_failed_call_counts_nothing():
    module = Counting(in_several)

    def fails(x):
        module(x)
        raise ValueError("no")

    before = repr(state_of(module))
    with pytest.raises(ValueError, match="no"):
        graph_of(fails)(X)
    assert repr(state_of(module)) == before

    graph = graph_of(
        lambda x: module(x) + torch.ones(3)[x.long().max() + 5 : 4].sum() + torch.ones(3)[x.long()]
    )
    with pytest.raises((IndexError, RuntimeError)):
        graph(X * 7)
    assert repr(state_of(module)) == before


@pytest.mark.usefixtures("both_kinds_of_calls")
def test_a_counter_in_a_training_step_counts_in_one_program():
    eager, module = twins(in_several)

    class Trains(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module
            self.add_optimizer(torch.optim.SGD(module.parameters(), lr=0.1))
            self.config.set_backend("aten")

        def build(self, x):
            loss = self.module(self.module(x)).square().mean()
            loss.backward()
            return loss

    graph, optimizer = Trains(), torch.optim.SGD(eager.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = eager(eager(X)).square().mean()
        loss.backward()
        optimizer.step()
        assert torch.equal(graph(X), loss.detach())
        assert state_of(module) == state_of(eager)
    assert len(graph._engine.programs) == 1, graph.explain()
