"""Functions, attribute dicts and objects of the standard library that change: the graph follows the change,
or a warning named it.
"""

from __future__ import annotations

import collections.abc
import contextlib
import decimal
import functools
import gc
import hashlib
import importlib.util
import inspect
import operator
import random
import sys
import types
import typing
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hostile_cases import X, verdict
from torch import nn

import oneflow as flow


class Scale:
    def __init__(self, factor=2.0):
        self.factor = factor


def test_deleted_variable_of_a_closure_is_followed():
    factor = 2.0

    def read():
        try:
            return factor
        except NameError:
            return 9.0

    def change():
        nonlocal factor
        del factor

    assert verdict(lambda x: x * read(), change) == "followed"


def test_defaults_of_a_function_that_had_none_are_followed():
    def scaled(x, factor):
        return x * factor

    def build(x):
        try:
            return scaled(x)
        except TypeError:
            return x * 7.0

    def change():
        scaled.__defaults__ = (2.0,)

    assert verdict(build, change) == "followed"


def test_replaced_attributes_of_an_object_are_followed():
    scale = Scale()

    def change():
        scale.__dict__ = {"factor": 3.0}

    assert verdict(lambda x: x * scale.factor, change) == "followed"


def test_replaced_attributes_of_an_object_that_c_code_receives_are_followed():
    scale = Scale()

    def change():
        scale.__dict__ = {"factor": 3.0}

    assert verdict(lambda x: x * operator.attrgetter("factor")(scale), change) == "followed"


def test_equal_attributes_make_no_program_and_are_followed():
    scale = Scale()

    class Scaled(flow.nn.Graph):
        def build(self, x):
            return x * scale.factor

    graph = Scaled()
    graph(X)
    scale.__dict__ = {"factor": 2.0, "unread": 1}
    graph(X)
    assert len(graph._engine.programs) == 1
    scale.factor = 3.0
    assert torch.equal(graph(X), X * 3.0)


def test_method_that_a_methodcaller_names():
    class Doubled(Scale):
        def scaled(self):
            return self.factor

    scale = Doubled()

    def change():
        Doubled.scaled = lambda self: 9.0

    assert verdict(lambda x: x * operator.methodcaller("scaled")(scale), change) == "followed"


def test_result_of_a_kept_null_context_is_followed():
    context = contextlib.nullcontext(2.0)

    def build(x):
        with context as factor:
            return x * factor

    def change():
        context.enter_result = 3.0

    assert verdict(build, change) == "followed"


def test_replaced_class_method_that_torch_calls():
    class Wrapped:
        @classmethod
        def __torch_function__(cls, function, classes, arguments=(), keywords=None):
            return arguments[0] * 2.0

    wrapped = Wrapped()

    def change():
        def three_times(cls, function, classes, arguments=(), keywords=None):
            return arguments[0] * 3.0

        Wrapped.__torch_function__ = classmethod(three_times)

    assert verdict(lambda x: torch.add(x, wrapped), change) == "followed"


@pytest.mark.parametrize("in_c", [False, True], ids=["apply of Python", "apply of C"])
def test_replaced_backward_of_an_autograd_function_is_followed(in_c):
    """torch 2.14 moved `apply` from Python to C."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 2.0

        @staticmethod
        def backward(context, gradient):
            return gradient * 2.0

    def build(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(apply(x).sum(), x)[0]

    apply = torch._C._FunctionBase.__dict__["apply"].__get__(None, Doubled) if in_c else Doubled.apply

    def change():
        Doubled.backward = staticmethod(lambda context, gradient: gradient * 9.0)

    assert verdict(build, change) == "followed"


def test_signature_of_a_function_is_followed():
    def function(a, b): ...

    def change():
        function.__signature__ = inspect.Signature()

    assert verdict(lambda x: x * (1 + len(inspect.signature(function).parameters)), change) == "followed"


def test_type_hints_of_a_function_are_followed():
    def function(a: int, b: float): ...

    def change():
        function.__annotations__.pop("b")

    assert verdict(lambda x: x * len(typing.get_type_hints(function)), change) == "followed"


def test_members_of_an_object_are_followed():
    scale = Scale()

    def build(x):
        return x * sum(value for name, value in inspect.getmembers(scale) if name.startswith("factor"))

    def change():
        Scale.factor_of_class = 5.0

    try:
        assert verdict(build, change) == "followed"
    finally:
        del Scale.factor_of_class


def test_identity_of_equal_strings_is_followed():
    first, second = types.SimpleNamespace(name="".join("ab")), types.SimpleNamespace()
    second.name = first.name

    def change():
        second.name = "".join(["a", "b"])

    assert verdict(lambda x: x * (2.0 if first.name is second.name else 3.0), change) == "followed"


def test_another_nan_in_a_list_is_followed():
    settings = types.SimpleNamespace(value=float("nan"))
    values = [settings.value]

    def change():
        settings.value = float("nan")

    assert verdict(lambda x: x * (2.0 if settings.value in values else 3.0), change) == "followed"


def test_precision_of_a_decimal_context_is_followed():
    context = decimal.Context(prec=4)

    def change():
        context.prec = 2

    assert verdict(lambda x: x * float(context.divide(1, 3)), change) == "followed"


def test_traps_of_decimal_arithmetic_are_followed(request):
    traps = decimal.getcontext().traps

    def build(x):
        try:
            return x * float(decimal.Decimal("0.1") + decimal.Decimal("1e-40"))
        except decimal.Inexact:
            return x * 9.0

    def change():
        traps[decimal.Inexact] = True

    request.addfinalizer(lambda: traps.__setitem__(decimal.Inexact, False))
    assert verdict(build, change) == "followed"


def test_field_of_a_record_array_is_followed():
    record = np.rec.array([(1.0, 2.0)], names="first,second")

    def change():
        record.second = [7.0]

    assert verdict(lambda x: x * float(record.second[0]), change) == "followed"


def test_thresholds_of_garbage_collection_are_followed(request):
    thresholds = gc.get_threshold()

    def change():
        gc.set_threshold(thresholds[0], thresholds[1] + 1, thresholds[2])

    request.addfinalizer(lambda: gc.set_threshold(*thresholds))
    assert verdict(lambda x: x * gc.get_threshold()[1], change) == "followed"


def test_object_of_a_small_class_in_c_is_named():
    digest = hashlib.sha1(b"a")

    def change():
        digest.update(b"b")

    assert verdict(lambda x: x * digest.digest()[0], change) == "named"


@pytest.mark.parametrize("read", [
    lambda: random.getstate()[1][5],
    lambda: np.random.get_state()[1][5],
], ids=["random", "numpy"])  # fmt: skip
def test_state_of_a_generator_is_named(request, read):
    states = random.getstate(), np.random.get_state()

    def change():
        random.seed(random.getstate()[1][1])
        np.random.seed(77)

    request.addfinalizer(lambda: (random.setstate(states[0]), np.random.set_state(states[1])))
    assert verdict(lambda x: x * float(read() % 1000 + 1), change) == "named"


def test_module_that_can_be_imported_later_is_named(tmp_path, monkeypatch):
    def build(x):
        return x * (2.0 if importlib.util.find_spec("hostile_absent") is None else 3.0)

    def change():
        (tmp_path / "hostile_absent.py").write_text("")
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()

    assert verdict(build, change) == "named"


def test_names_that_executed_code_imports_are_named(monkeypatch):
    module = types.ModuleType("hostile_star")
    module.factor = 2.0
    monkeypatch.setitem(sys.modules, "hostile_star", module)

    def build(x):
        scope = {}
        exec("from hostile_star import *", scope)
        return x * scope["factor"]

    def change():
        module.factor = 3.0

    assert verdict(build, change) == "named"


@functools.singledispatch
def factor_of(value):
    return 2.0


factor_of.register(collections.abc.Sequence, lambda value: 3.0)


def calls_without_warning(build, change):
    """Return the number of programs of two calls with a change between them, none of which may warn."""

    class Reads(flow.nn.Graph):
        def build(self, x):
            return build(x)

    graph = Reads()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert torch.equal(graph(X), build(X))
            change()
    return len(graph._engine.programs)


def test_dispatch_by_an_abstract_class_needs_no_warning():
    assert calls_without_warning(lambda x: x * factor_of([1]), lambda: factor_of("text")) == 1


def test_dispatch_by_a_class_that_is_registered_later():
    class Registered: ...

    value = Registered()

    def change():
        collections.abc.Sequence.register(Registered)

    assert verdict(lambda x: x * factor_of(value), change) == "followed"


def test_entry_that_leaves_a_full_cache_needs_no_warning():
    @functools.lru_cache(maxsize=1)
    def doubled(value):
        return value * 2.0

    doubled(3)
    assert calls_without_warning(lambda x: x * doubled(3.0), lambda: None) == 1


@pytest.mark.parametrize(("function", "defaults", "build"), [
    (F.leaky_relu, (0.5, False), F.leaky_relu),
    (F.layer_norm, (None, None, 0.5), lambda x: F.layer_norm(x, (4,))),
    (torch.norm, (1.0, None, False, None, None), lambda x: x * torch.norm(x)),
    (torch.Tensor.norm, (1.0, None, False, None), lambda x: x * x.norm()),
    (nn.LeakyReLU.__init__, (0.9, False), lambda x: nn.LeakyReLU()(x)),
], ids=["functional", "called with a constant", "torch", "method", "constructor"])  # fmt: skip
def test_defaults_of_a_function_of_torch_are_followed(monkeypatch, function, defaults, build):
    assert verdict(build, lambda: monkeypatch.setattr(function, "__defaults__", defaults)) == "followed"


def test_code_of_a_function_of_torch_is_followed(monkeypatch):
    def doubled(input, min_val=-1.0, max_val=1.0, inplace=False):
        return input * 2

    change = lambda: monkeypatch.setattr(F.hardtanh, "__code__", doubled.__code__)
    assert verdict(F.hardtanh, change) == "followed"


@pytest.mark.parametrize("read", [
    lambda names: exec("result = factor * 2", names) or names["result"],
    lambda names: exec("result = factor * 2", names) or sum(list(names.values())[-1:]),
], ids=["name", "values"])  # fmt: skip
def test_namespace_that_code_fills_makes_no_program(read):
    names = {"factor": 1.0}

    class Executes(flow.nn.Graph):
        def build(self, x):
            return x * read(names)

    graph = Executes()
    read(names)  # the namespace has the built-in functions from now on
    for _ in range(3):
        assert torch.equal(graph(X), X * 2.0)
    assert len(graph._engine.programs) == 1
    names["factor"] = 2.0
    assert torch.equal(graph(X), X * 4.0)


def test_filter_that_makes_a_warning_an_error():
    def build(x):
        try:
            warnings.warn("old", PendingDeprecationWarning, stacklevel=1)
        except PendingDeprecationWarning:
            return x * 2.0
        return x * 3.0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        change = lambda: warnings.simplefilter("error", PendingDeprecationWarning)
        assert verdict(build, change) == "followed"
