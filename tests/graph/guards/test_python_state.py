"""A graph follows Python values that build() reads and tensors that it stores in attributes, as eager mode
does.
"""

import argparse
import collections
import copy
import types
import warnings

import numpy as np
import pytest
import torch
from graph_cases import graph_of
from torch import nn

import oneflow as flow


class Own(nn.Module):
    def __init__(self, function, **attributes):
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.function(self, x)


def follow(make, between=lambda module, step: None, steps=5):
    """Train twins in eager and in a graph, `between` changing both before each step; losses and state agree
    bit for bit.
    """
    torch.manual_seed(0)
    eager = make()
    other = copy.deepcopy(eager)
    xs = [torch.randn(6, 4) for _ in range(steps)]
    results, graph = [], None
    for module in (eager, other):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

        def build(x, module=module):
            loss = module(x).square().mean()
            loss.backward()
            return loss

        step, losses = build, []
        if module is other:
            step = graph = graph_of(build, optimizer, module=module)
        torch.manual_seed(1)
        for k, x in enumerate(xs):
            between(module, k)
            optimizer.zero_grad()
            losses.append(step(x).item())
            if step is build:
                optimizer.step()
        results.append((losses, module.state_dict(), torch.get_rng_state()))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(v, results[1][1][k]) for k, v in results[0][1].items())
    assert torch.equal(results[0][2], results[1][2])
    return other, graph


def assign(name, value):
    def between(module, step):
        setattr(module, name, value(step))

    return between


class Config:
    def __init__(self, **values):
        vars(self).update(values)


class Easy(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@pytest.mark.parametrize(
    "make, between, programs",
    [
        (
            lambda: Own(lambda m, x: m.linear(x) * m.cfg.scale, cfg=argparse.Namespace(scale=1.0)),
            lambda m, k: setattr(m.cfg, "scale", float(k > 1)),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * m.cfg.scale, cfg=Config(scale=1.0)),
            lambda m, k: setattr(m.cfg, "scale", float(k > 1)),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * m.cfg.inner.scale, cfg=Config(inner=Config(scale=1.0))),
            lambda m, k: setattr(m.cfg.inner, "scale", float(k > 1)),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * m.cfg.scale, cfg=Easy(scale=1.0)),
            lambda m, k: m.cfg.update(scale=float(k > 1)),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * m.cfg["scale"], cfg=collections.defaultdict(int)),
            lambda m, k: m.cfg.update(scale=float(k > 1)),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * m.cfg.scale, cfg=Config(scale=1.0, step=0)),
            lambda m, k: setattr(m.cfg, "step", k),
            1,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * m.cfg.scale, cfg=Config(scale=1.0)),
            assign("cfg", lambda k: Config(scale=1.0)),
            1,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * m.cfg.scale, cfg=Config(scale=1.0)),
            assign("cfg", lambda k: Config(scale=float(k > 2))),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * getattr(m.cfg, "scale", 1.0), cfg=Config()),
            lambda m, k: k == 2 and setattr(m.cfg, "scale", 2.0),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) + m.cfg.shift, cfg=Config(shift=torch.zeros(4))),
            lambda m, k: setattr(m.cfg, "shift", torch.full((4,), float(k))),
            1,
        ),
    ],
    ids=[
        "argparse",
        "class",
        "nested",
        "dict with attributes",
        "defaultdict",
        "attribute not read",
        "equal object",
        "other object",
        "missing",
        "tensor",
    ],
)
def test_objects_without_methods_are_followed(make, between, programs):
    assert len(follow(make, between)[1]._engine.programs) == programs


def test_an_equal_object_is_followed_from_then_on():
    cfg = Config(scale=2.0)

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.cfg = cfg
            self.config.set_backend("aten")

        def build(self, x):
            return x * self.cfg.scale

    graph, x = G(), torch.ones(1)
    assert graph(x).item() == 2
    graph.cfg = Config(scale=2.0)
    assert graph(x).item() == 2
    graph.cfg.scale = 3.0
    assert graph(x).item() == 3
    assert not isinstance(vars(Config).get("__getattribute__"), types.FunctionType)


@pytest.mark.parametrize(
    "make, between, programs",
    [
        (
            lambda: Own(lambda m, x: m.linear(x) * m.scale, scale=1.0),
            assign("scale", lambda k: float(k > 2)),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * (2 if m.phase == "a" else 3), phase="a"),
            assign("phase", lambda k: "ab"[k % 2]),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * (1 if m.flag is None else m.flag), flag=None),
            assign("flag", lambda k: None if k < 2 else 3),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.act(m.linear(x)), act=torch.relu),
            assign("act", lambda k: torch.relu if k < 2 else torch.tanh),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * m.w[0], w=[1.0, 2.0]),
            lambda m, k: m.w.__setitem__(0, float(k > 1)),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * m.cfg.scale, cfg=types.SimpleNamespace(scale=1.0)),
            lambda m, k: setattr(m.cfg, "scale", float(k > 1)),
            2,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) * getattr(m, "late", 1.0)),
            lambda m, k: k == 2 and setattr(m, "late", 3.0),
            2,
        ),
        (
            lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)),
            lambda m, k: setattr(m[1], "p", 0.5 if k < 3 else 0.1),
            2,
        ),
        (
            lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
            lambda m, k: setattr(m[1], "momentum", 0.1 if k < 3 else 0.01),
            2,
        ),
        (
            lambda: nn.Sequential(nn.Linear(4, 4), nn.Identity()),
            lambda m, k: k == 2 and m.__setitem__(1, nn.Tanh()),
            2,
        ),
        (lambda: nn.Sequential(nn.Linear(4, 4)), lambda m, k: k == 2 and m.append(nn.Tanh()), 2),
        (
            lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)),
            lambda m, k: m[0].requires_grad_(k < 2 or k > 3),
            2,
        ),
        (lambda: Own(lambda m, x: m.linear(x) * m.scale, scale=1.0), assign("scale", lambda k: 1.0), 1),
        (
            lambda: Own(lambda m, x: m.linear(x) + m.hidden, hidden=torch.zeros(4)),
            assign("hidden", lambda k: torch.full((4,), float(k))),
            1,
        ),
        (
            lambda: Own(lambda m, x: m.linear(x) + m.hidden, hidden=torch.zeros(4)),
            assign("hidden", lambda k: torch.full((1 if k < 2 else 4,), float(k))),
            2,
        ),
    ],
    ids=[
        "number",
        "string",
        "none",
        "function",
        "list item",
        "namespace",
        "missing",
        "dropout p",
        "momentum",
        "submodule",
        "appended",
        "frozen",
        "same number",
        "tensor",
        "tensor of another shape",
    ],
)
def test_attributes_changed_between_calls(make, between, programs):
    assert len(follow(make, between)[1]._engine.programs) == programs


@pytest.mark.parametrize(
    "make",
    [
        lambda: Own(running_mean, running=None),
        lambda: with_none_buffer(Own(running_mean)),
        lambda: Own(running_list, running=[torch.zeros(4), 0.5]),
        lambda: Own(running_dict, running={}),
        lambda: Own(truncated, hidden=None, cell=nn.LSTM(4, 4)),
        lambda: Own(growing, seen=None),
        lambda: Own(once, ready=False, shift=torch.zeros(4)),
        lambda: Own(to_float, count=torch.zeros((), dtype=torch.long)),
    ],
    ids=["none attribute", "none buffer", "list", "dict", "tuple", "growing", "lazy start", "dtype"],
)
def test_tensors_kept_in_attributes(make):
    eager_like, _ = follow(make)
    for value in vars(eager_like).values():
        assert not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, nn.Parameter)


def running_mean(m, x):
    y = m.linear(x)
    m.running = y.detach().mean(0) if m.running is None else m.running * 0.9 + y.detach().mean(0) * 0.1
    return y + m.running


def with_none_buffer(module):
    module.register_buffer("running", None)
    return module


def running_list(m, x):
    y = m.linear(x)
    m.running[0] = m.running[0] * m.running[1] + y.detach().mean(0)
    return y + m.running[0]


def running_dict(m, x):
    y = m.linear(x)
    m.running["h"] = m.running.get("h", 0) * 0.5 + y.detach().mean(0)
    return y + m.running["h"]


def truncated(m, x):
    hidden = None if m.hidden is None else tuple(t.detach() for t in m.hidden)
    y, m.hidden = m.cell(m.linear(x).unsqueeze(1), hidden)
    return y


def growing(m, x):
    y = m.linear(x)
    m.seen = y.detach() if m.seen is None else torch.cat([m.seen, y.detach()])
    return y + m.seen.mean(0)


def once(m, x):
    y = m.linear(x)
    if not m.ready:
        m.shift = y.detach().mean(0)
        m.ready = True
    return y - m.shift


def to_float(m, x):
    m.count = m.count + 0.5
    return m.linear(x) * m.count


def test_an_attribute_set_by_forward_is_a_real_tensor_of_the_last_call():
    def forward(m, x):
        m.attention = m.linear(x).softmax(-1)
        return m.attention

    module = Own(forward)
    graph = graph_of(lambda x: module(x), module=module)
    for _ in range(3):
        x = torch.randn(2, 4)
        assert torch.equal(graph(x), module.attention)
        assert type(module.attention) is torch.Tensor and not module.attention.requires_grad
    assert len(graph._engine.programs) == 1


def test_names_of_closures_globals_and_the_graph_are_followed():
    number, tensor = 1.0, torch.ones(2)

    class Program(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.phase = 0
            self.config.set_backend("aten")

        def build(self, x):
            return x * number + tensor * SCALE + self.phase

    graph, x = Program(), torch.ones(2)
    for change in range(4):
        if change == 1:
            number = 5.0
        if change == 2:
            globals()["SCALE"], tensor = 3.0, torch.full((2,), 2.0)
        if change == 3:
            graph.phase = 100
        assert torch.equal(graph(x), x * number + tensor * SCALE + graph.phase)
    number, globals()["SCALE"], graph.phase, tensor = 1.0, 2.0, 0, torch.zeros(2)
    programs = len(graph._engine.programs)
    assert torch.equal(graph(x), x)
    assert len(graph._engine.programs) == programs, "values seen before find their program again"


SCALE = 2.0


def test_a_value_that_changes_at_every_call_and_is_needed_is_warned_about_once():
    module = Own(lambda m, x: m.linear(x) * float(f"{m.scale}"), scale=0.0)
    graph = graph_of(lambda x: module(x), module=module)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for k in range(20):
            module.scale = float(k)
            graph(torch.ones(1, 4))
    assert [str(w.message) for w in seen if "'Own.scale'" in str(w.message)] and len(
        [w for w in seen if "Own.scale" in str(w.message)]
    ) == 1


def test_unread_values_may_change():
    module = Own(lambda m, x: m.linear(x), unread=1)
    graph = graph_of(lambda x: module(x), module=module)
    for k in range(3):
        module.unread = k
        graph(torch.ones(1, 4))
    assert len(graph._engine.programs) == 1


def test_a_parameter_replaced_after_the_first_call_is_no_longer_trained_as_in_eager():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def build(x):
        loss = module(x).square().mean()
        loss.backward()
        return loss

    graph = graph_of(build, optimizer, module=module)
    graph(torch.ones(2, 4))
    module[0].weight = nn.Parameter(torch.eye(4))
    graph(torch.ones(2, 4))
    assert torch.equal(module[0].weight, torch.eye(4))


def test_an_error_in_build_puts_numbers_and_lists_back():
    def forward(m, x):
        m.count += 1
        m.seen.append(m.linear(x))
        m.cache = x
        raise KeyError("mine")

    module = Own(forward, count=0, seen=[], cache=None)
    with pytest.raises(KeyError):
        graph_of(lambda x: module(x), module=module)(torch.ones(2, 4))
    assert module.count == 0 and module.seen == [] and module.cache is None


def test_reading_attributes_is_as_ever_after_a_capture():
    module = nn.Linear(4, 4)
    graph_of(lambda x: module(x), module=module)(torch.ones(1, 4))
    assert "__getattribute__" not in nn.Module.__dict__


def test_flags_and_numbers_that_a_program_changes_change_in_every_call():
    class Alternates(nn.Module):
        def __init__(self):
            super().__init__()
            self.odd, self.seen, self.name = False, {"last": None, "n": [0]}, "none"

        def forward(self, x):
            self.odd = not self.odd
            self.seen["last"] = "odd" if self.odd else "even"
            self.seen["n"][0] = 1 - self.seen["n"][0]
            self.name = self.seen["last"] + "!"
            return x * 2 if self.odd else x * 3

    class Runs(flow.nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model, self.turn = model, "a"
            self.config.set_backend("aten")

        def build(self, x):
            self.turn = "b" if self.turn == "a" else "a"
            return self.model(x)

    eager, model = Alternates(), Alternates()
    graph, turn = Runs(model), "a"
    for i in range(7):
        x = torch.full((2,), float(i))
        turn = "b" if turn == "a" else "a"
        assert torch.equal(graph(x), eager(x)), i
        assert (model.odd, model.seen, model.name, graph.turn) == (eager.odd, eager.seen, eager.name, turn), i
    assert len(graph._engine.programs) == 2  # one for each state that forward() reads


table_of_the_file = np.ones(2, np.float32)


@pytest.mark.parametrize(
    "read",
    [torch.from_numpy, torch.tensor, lambda t: float(t.sum()), lambda t: t[0]],
    ids=["from_numpy", "tensor", "sum", "element"],
)
@pytest.mark.parametrize("size", [2, 10_000])
def test_arrays_are_followed(read, size):
    class Scales(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = np.ones(size, np.float32)

        def forward(self, x):
            return x * read(self.table) * float(table_of_the_file[0])

    global table_of_the_file
    model, x = Scales(), torch.ones(size)
    graph = graph_of(lambda x: model(x))
    assert (
        torch.equal(graph(x), model(x))
        and torch.equal(graph(x), model(x))
        and len(graph._engine.programs) == 1
    )
    table_of_the_file = table_of_the_file * 2
    assert torch.equal(graph(x), model(x))
    model.table *= 3
    assert torch.equal(graph(x), model(x))
    model.table = model.table + 4
    assert torch.equal(graph(x), model(x))
    model.table = model.table.copy()
    assert torch.equal(graph(x), model(x)) and len(graph._engine.programs) == 4
    model.table *= 3
    assert torch.equal(graph(x), model(x))


class Degree(tuple):
    """As e3nn's: a tuple that refuses to be taken for one."""

    def __len__(self):
        raise NotImplementedError

    def __iter__(self):
        return iter((tuple.__getitem__(self, 0) + 1,))


def test_a_tuple_with_an_overridden_length_is_guarded_by_its_elements():
    def between(module, step):
        if step == 2:
            module.degrees = ((3, Degree((4,))),)

    follow(
        lambda: Own(
            lambda m, x: m.linear(x) * sum(n * d for n, (d,) in m.degrees), degrees=((2, Degree((1,))),)
        ),
        between,
    )


PLACES_OF_TENSORS = {
    "attributes": (lambda a, b: types.SimpleNamespace(a=a, b=b), lambda o: vars(o)),
    "dict": (lambda a, b: {"a": a, "b": b}, lambda o: o),
}


@pytest.mark.parametrize("place", PLACES_OF_TENSORS)
def test_tensors_that_the_caller_swaps_between_calls(place):
    """Each name has the tensor of the other one; both are read by one program."""
    make, names = PLACES_OF_TENSORS[place]
    holder = make(torch.zeros(2), torch.ones(2))

    class Graph(flow.nn.Graph):
        def build(self, x):
            first, second = names(holder).values()
            return x + 2 * first + 10 * second

    graph, x = Graph(), torch.zeros(2)
    graph.config.set_backend("aten")
    for call in range(5):
        entries = names(holder)
        first, second = entries.values()
        assert torch.equal(graph(x), x + 2 * first + 10 * second), call
        for name, value in zip(list(entries), (second, first)):
            entries[name] = value
    assert len(graph._engine.programs) == 1
