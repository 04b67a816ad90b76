"""No program is silently stale: a graph follows each change of Python state between calls, or a warning named
it at capture.
"""

import collections
import contextvars
import dataclasses
import datetime
import functools
import os
import threading
import types
import warnings
from fractions import Fraction

import numpy as np
import pytest
import settings_of_stale as settings
import torch
import torch.nn.functional as F
from stale_cases import Base, assert_change_is_followed, graph_of
from torch import nn

import oneflow as flow

K, SWITCH, TABLE = 1.0, {1}, {"a": [1.0, {"b": 1.0}]}
NAMESPACE, VARIABLE, LOCAL = (
    types.SimpleNamespace(k=1.0),
    contextvars.ContextVar("variable", default=1.0),
    threading.local(),
)
LOCAL.k = 1.0
NOTEBOOK = types.ModuleType("notebook")  # a module without a file, as __main__ is in a notebook
NOTEBOOK.k = 1.0


def set_global(**values):
    globals().update(values)


@pytest.fixture(autouse=True)
def globals_as_before():
    yield
    set_global(K=1.0)
    SWITCH.discard(2)
    TABLE["a"][1]["b"], NAMESPACE.k, settings.SCALE, settings.TABLE["k"][1] = 1.0, 1.0, 1.0, 2.0
    LOCAL.k = NOTEBOOK.k = 1.0
    VARIABLE.set(1.0)
    os.environ.pop("STALE_SCALE", None)


# -- globals, by the way in which their function is reached -------------------------------


class Private(Base):
    def _times(self, x):
        return x * K

    def forward(self, x):
        return self._times(self.linear(x))


class Inherits(Private):
    def forward(self, x):
        return super().forward(x) + 0


class Static(Base):
    @staticmethod
    def times(x):
        return x * K

    def forward(self, x):
        return self.times(self.linear(x))


class OfClass(Base):
    @classmethod
    def times(cls, x):
        return x * K

    def forward(self, x):
        return self.times(self.linear(x))


class Property(Base):
    @property
    def k(self):
        return K

    def forward(self, x):
        return self.linear(x) * self.k


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * K

    @staticmethod
    def backward(ctx, gradient):
        return gradient * K


def wrapped(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) * K

    return wrapper


@wrapped
def doubled(x):
    return x * 2


class Callable:
    def __call__(self, x):
        return x * K


class Compares:
    def __eq__(self, other):
        return K == 1.0

    __hash__ = None


@pytest.mark.parametrize(
    "module, body",
    [
        (Private, None),
        (Inherits, None),
        (Static, None),
        (OfClass, None),
        (Property, None),
        (Base, lambda m, x: Scaled.apply(m(x))),
        (Base, lambda m, x: doubled(m(x))),
        (Base, lambda m, x: functools.partial(lambda k, y: y * K * k, 2.0)(m(x))),
        (lambda: Base(act=Callable()), lambda m, x: m.act(m(x))),
        (lambda: Base(other=Compares()), lambda m, x: m(x) * (1 if m.other == 3 else 2)),
        (Base, lambda m, x: m(x) * sum(map(lambda v: v * K, [1.0, 2.0]))),
        (Base, lambda m, x: m(x) * sorted([1.0, 2.0], key=lambda v: v * (1 if K == 1.0 else -1))[0]),
        (Base, lambda m, x: m(x) * next(v * K for v in [2.0])),
    ],
    ids=[
        "private method",
        "super",
        "staticmethod",
        "classmethod",
        "property",
        "autograd function",
        "wraps",
        "partial",
        "callable object",
        "__eq__",
        "map",
        "sort key",
        "generator",
    ],
)
def test_a_global_is_followed_however_its_function_is_reached(module, body):
    assert_change_is_followed(module(), lambda m: set_global(K=3.0), body)


def test_a_global_read_in_backward_only_is_followed():
    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient * K

    def body(module, x):
        y = Backward.apply(module(x)).sum()
        return torch.autograd.grad(y, module.linear.bias)[0]

    assert_change_is_followed(Base(), lambda m: set_global(K=3.0), body)


@pytest.mark.parametrize(
    "read, change",
    [
        (lambda: settings.SCALE, lambda: setattr(settings, "SCALE", 3.0)),
        (lambda: settings.scaled(1.0), lambda: setattr(settings, "SCALE", 3.0)),
        (lambda: sum(settings.TABLE["k"]), lambda: settings.TABLE["k"].__setitem__(1, 5.0)),
        (lambda: TABLE["a"][1]["b"], lambda: TABLE["a"][1].update(b=3.0)),
        (lambda: NAMESPACE.k, lambda: setattr(NAMESPACE, "k", 3.0)),
        (lambda: 2.0 if 2 in SWITCH else 1.0, lambda: SWITCH.add(2)),
        (lambda: imported(), lambda: setattr(settings, "SCALE", 3.0)),
        (lambda: NOTEBOOK.k, lambda: setattr(NOTEBOOK, "k", 3.0)),
        (lambda: float(os.environ.get("STALE_SCALE", "1")), lambda: os.environ.update(STALE_SCALE="3")),
        (lambda: float(os.getenv("STALE_SCALE", "1")), lambda: os.environ.update(STALE_SCALE="3")),
        (lambda: VARIABLE.get(), lambda: VARIABLE.set(3.0)),
        (lambda: LOCAL.k, lambda: setattr(LOCAL, "k", 3.0)),
    ],
    ids=[
        "module constant",
        "module function",
        "module table",
        "deep",
        "namespace",
        "set",
        "import in a function",
        "module without a file",
        "environ",
        "getenv",
        "context variable",
        "thread-local",
    ],
)
def test_values_that_a_function_reads_from_outside_are_followed(read, change):
    assert_change_is_followed(Base(), lambda m: change(), lambda m, x: m(x) * read())


def imported():
    from settings_of_stale import SCALE

    return SCALE


# -- attributes of any class ---------------------------------------------------------------


class Helper:
    rate = 1.0

    def __init__(self):
        self.k = 1.0

    def times(self, x):
        return x * self.k * self.rate


@dataclasses.dataclass(slots=True)
class Slots:
    k: float = 1.0


@dataclasses.dataclass
class Data:
    k: float = 1.0


def replace(name, value):
    return lambda m: setattr(m, name, value)


@pytest.mark.parametrize(
    "attributes, function, change",
    [
        (lambda: {"on": {1}}, lambda m, y: y * (2 if 2 in m.on else 1), replace("on", {1, 2})),
        (lambda: {"d": collections.deque([1.0])}, lambda m, y: y * m.d[0], lambda m: m.d.__setitem__(0, 3.0)),
        (lambda: {"d": collections.deque([1.0])}, lambda m, y: y * sum(m.d), lambda m: m.d.append(2.0)),
        (lambda: {"big": [1.0] * 40}, lambda m, y: y * sum(m.big), replace("big", [1.0] * 39 + [5.0])),
        (
            lambda: {"fs": (F.relu, torch.tanh)},
            lambda m, y: m.fs[1](m.fs[0](y)),
            replace("fs", (F.relu, torch.sin)),
        ),
        (
            lambda: {"act": functools.partial(F.leaky_relu, negative_slope=0.1)},
            lambda m, y: m.act(y),
            replace("act", functools.partial(F.leaky_relu, negative_slope=0.9)),
        ),
        (lambda: {"f": Helper().times}, lambda m, y: m.f(y), lambda m: setattr(m.f.__self__, "k", 3.0)),
        (lambda: {"c": Slots()}, lambda m, y: y * m.c.k, lambda m: setattr(m.c, "k", 3.0)),
        (lambda: {"c": (Data(), Data())}, lambda m, y: y * m.c[1].k, lambda m: setattr(m.c[1], "k", 3.0)),
        (
            lambda: {"c": Data()},
            lambda m, y: y * dataclasses.asdict(m.c)["k"],
            lambda m: setattr(m.c, "k", 3.0),
        ),
        (lambda: {"c": Fraction(1, 2)}, lambda m, y: y * float(m.c), replace("c", Fraction(1, 3))),
        (lambda: {"_k": 1.0}, lambda m, y: y * m._k, replace("_k", 3.0)),
        (lambda: {"c": [2]}, lambda m, y: y * (torch.arange(4) * m.c[0]).dtype.itemsize, replace("c", [2.0])),
        (lambda: {"c": [0.0]}, lambda m, y: y + (1.0 / torch.tensor(m.c[0])).sign(), replace("c", [-0.0])),
        (lambda: {"c": [0.0]}, lambda m, y: y + (1.0 / torch.tensor(m.c)).sign(), replace("c", [-0.0])),
        (lambda: {"c": [1.0, 2.0]}, lambda m, y: y * sum(v for v in m.c), lambda m: m.c.append(3.0)),
        (
            lambda: {"c": {"p": 0.5}},
            lambda m, y: F.leaky_relu(y, **{"negative_slope": v for v in m.c.values()}),
            lambda m: m.c.update(p=0.9),
        ),
        (
            lambda: {"c": ["relu"]},
            lambda m, y: getattr(F, f"{m.c[0]}")(y),
            lambda m: m.c.__setitem__(0, "tanh"),
        ),
        (lambda: {"c": np.ones(3)}, lambda m, y: y * float(m.c[0]), lambda m: m.c.__setitem__(0, 3.0)),
        (
            lambda: {"c": np.ones(40_000)},
            lambda m, y: y * float(m.c.sum()),
            lambda m: m.c.__setitem__(7, 3.0),
        ),
        (lambda: {"c": []}, lambda m, y: y * (3 if m.c else 1), lambda m: m.c.append(1)),
        (lambda: {"c": [1]}, lambda m, y: y * (3 if m.c == [1, 2] else 1), lambda m: m.c.append(2)),
        (
            lambda: {"c": [Helper()]},
            lambda m, y: [h.times for h in m.c][0](y),
            lambda m: setattr(m.c[0], "k", 3.0),
        ),
        (lambda: {"c": Helper()}, lambda m, y: m.c.times(y), lambda m: setattr(m.c, "rate", 3.0)),
        (
            lambda: {"c": collections.Counter(a=1)},
            lambda m, y: y * m.c.most_common(1)[0][1],
            lambda m: m.c.update("aa"),
        ),
        (
            lambda: {"c": collections.OrderedDict(a=1.0, b=2.0)},
            lambda m, y: y * next(iter(m.c.values())),
            lambda m: m.c.move_to_end("a"),
        ),
        (
            lambda: {"c": collections.ChainMap({"k": 1.0})},
            lambda m, y: y * m.c["k"],
            lambda m: m.c.maps[0].update(k=3.0),
        ),
        (
            lambda: {"f": eval("lambda y, k=1.0: y * k")},
            lambda m, y: m.f(y),
            lambda m: setattr(m.f, "__defaults__", (3.0,)),
        ),
        (
            lambda: {"f": eval("lambda y: y * 1.0")},
            lambda m, y: m.f(y),
            lambda m: setattr(m.f, "__code__", (lambda y: y * 3.0).__code__),
        ),
        (
            lambda: {"c": [[1.0], [2.0]]},
            lambda m, y: y @ torch.tensor(m.c).repeat(2, 1),
            lambda m: m.c[1].__setitem__(0, 5.0),
        ),
        (lambda: {"flag": None}, lambda m, y: y if m.flag is None else y * 3, replace("flag", 1)),
        (lambda: {}, lambda m, y: y * getattr(m, "extra", 1.0), replace("extra", 3.0)),
        (
            lambda: {},
            lambda m, y: y * m.extra if hasattr(m, "extra") else y,
            lambda m: m.register_buffer("extra", torch.full((4,), 3.0)),
        ),
        (lambda: {}, lambda m, y: y * m.extra if "extra" in m.__dict__ else y, replace("extra", 3.0)),
        (
            lambda: {"c": types.MappingProxyType({"k": 1.0})},
            lambda m, y: y * m.c["k"],
            replace("c", types.MappingProxyType({"k": 3.0})),
        ),
        (
            lambda: {"at": datetime.timedelta(1)},
            lambda m, y: y * m.at.days,
            replace("at", datetime.timedelta(3)),
        ),
    ],
    ids=[
        "set",
        "deque element",
        "deque sum",
        "long list",
        "tuple of functions",
        "partial",
        "bound method",
        "slots",
        "tuple of dataclasses",
        "asdict",
        "Fraction",
        "private",
        "2 and 2.0",
        "0.0 and -0.0",
        "list of -0.0",
        "generator",
        "items",
        "format",
        "array",
        "long array",
        "truth",
        "compared lists",
        "helper in a list",
        "class attribute of a helper",
        "Counter",
        "order of a dict",
        "ChainMap",
        "defaults",
        "code",
        "nested lists",
        "None",
        "getattr",
        "hasattr",
        "in __dict__",
        "mapping proxy",
        "timedelta",
    ],
)
def test_an_attribute_of_any_class_is_followed(attributes, function, change):
    assert_change_is_followed(Base(function, **attributes()), change)


@pytest.mark.parametrize(
    "make",
    [list, tuple, collections.deque, dict.fromkeys, lambda ts: {"all": ts}],
    ids=["list", "tuple", "deque", "keys", "dict"],
)
def test_replaced_tensors_in_a_container_are_read(make):
    def function(module, y):
        for tensor in module.tensors["all"] if "all" in module.tensors else module.tensors:
            y = y * tensor
        return y

    module = Base(function, tensors=make([torch.ones(4), torch.ones(4)]))
    graph, eager = graph_of(module)
    x = torch.randn(3, 4)
    assert torch.equal(graph(x), eager(x))
    module.tensors = make([torch.ones(4) * 2, torch.ones(4) * 3])
    assert torch.equal(graph(x), eager(x))
    same = torch.ones(4) * 5
    module.tensors = make([same, same])
    assert torch.equal(graph(x), eager(x))


def test_a_private_attribute_of_the_graph_is_followed():
    class Runs(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self._factor = 2.0
            self.config.set_backend("aten")

        def build(self, x):
            return x * self._factor

    graph, x = Runs(), torch.ones(2)
    assert graph(x).tolist() == [2.0, 2.0]
    graph._factor = 3.0
    assert graph(x).tolist() == [3.0, 3.0]


def test_a_closure_is_followed():
    k = 1.0

    def scale(x):
        return x * k

    def change(module):
        nonlocal k
        k = 3.0

    assert_change_is_followed(Base(), change, lambda m, x: scale(m(x)))


# -- what makes no program -----------------------------------------------------------------


class Counts(Base):
    log: list = []

    def forward(self, x):
        settings.COUNTS["calls"] += 1
        self.log.append(tuple(x.shape))
        if settings.CACHE.get("width") is None:
            settings.CACHE["width"] = 4
        return (
            self.linear(x)
            * self.scale
            * self.options["a"]
            * sum(self.rates)
            * self.config.k
            / settings.CACHE["width"]
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda m: None,
        lambda m: m.eval().train(),
        lambda m: setattr(m, "unread", 1),
        lambda m: setattr(m, "scale", float("2.5")),
        lambda m: setattr(m, "options", {"a": 1.0}),
        lambda m: setattr(m, "rates", [1.0, 2.0]),
        lambda m: setattr(m, "config", Data()),
        lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
        lambda m: setattr(m.linear, "weight", nn.Parameter(m.linear.weight.detach() * 2)),
        lambda m: m.float(),
        lambda m: m(torch.ones(1, 4)).sum().backward(),
    ],
    ids=[
        "nothing",
        "eval and train",
        "unread",
        "equal number",
        "equal dict",
        "equal list",
        "equal object",
        "load_state_dict",
        "parameter",
        "float",
        "eager",
    ],
)
def test_a_change_without_meaning_makes_no_program(change):
    module = Counts(scale=2.5, options={"a": 1.0}, rates=[1.0, 2.0], config=Data())
    graph, eager = graph_of(module)
    x = torch.randn(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(x)
        for _ in range(3):
            change(module)
            assert torch.equal(graph(x), eager(x))
    assert len(graph._engine.programs) == 1


def test_an_equal_object_is_followed_from_then_on():
    module = Base(lambda m, y: y * m.config.k * m.options["a"][0], config=Data(), options={"a": [1.0]})
    graph, eager = graph_of(module)
    x = torch.randn(3, 4)
    graph(x)
    module.config, module.options = Data(), {"a": [1.0]}
    graph(x)
    assert len(graph._engine.programs) == 1
    module.config.k = 3.0
    assert torch.equal(graph(x), eager(x))
    module.options["a"][0] = 3.0
    assert torch.equal(graph(x), eager(x))
