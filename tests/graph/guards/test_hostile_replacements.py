"""Functions of torch, builtins or math are replaced: the graph follows, or a warning named it."""

import builtins
import math

import torch
import torch.nn.functional as F
from hostile_cases import verdict
from torch import nn


def test_replaced_function_of_torch_is_followed(request):

    class P:
        @staticmethod
        def go():
            return None

    old = torch.relu

    def change():
        torch.relu = lambda x: old(x) * 3

    def build(x):
        return torch.relu(x)

    request.addfinalizer(lambda: setattr(torch, "relu", old))
    assert verdict(build, change) == "followed"


def test_replaced_function_that_a_module_of_torch_calls(request):
    old = F.linear
    m = nn.Linear(4, 4)

    def change():
        F.linear = lambda a, w, b=None: old(a, w, b) * 2

    def build(x):
        return m(x)

    request.addfinalizer(lambda: setattr(F, "linear", old))
    assert verdict(build, change) == "followed"


def test_replaced_function_of_functional_is_followed(request):
    old = F.relu

    def change():
        F.relu = lambda a, inplace=False: old(a) * 2

    def build(x):
        return F.relu(x)

    request.addfinalizer(lambda: setattr(F, "relu", old))
    assert verdict(build, change) == "followed"


def test_method_added_to_tensors_is_followed(request):
    torch.Tensor.hostile = lambda s: s * 2

    def change():
        torch.Tensor.hostile = lambda s: s * 3

    def build(x):
        return x.hostile()

    request.addfinalizer(lambda: delattr(torch.Tensor, "hostile"))
    assert verdict(build, change) == "followed"


def test_method_of_tensors_that_calls_the_method_it_replaced(monkeypatch):
    old = torch.Tensor.relu

    def change():
        monkeypatch.setattr(torch.Tensor, "relu", lambda self: old(self) * 2)

    def build(x):
        return x.relu()

    assert verdict(build, change) == "followed"


def test_replaced_forward_of_a_class_of_torch_is_followed(request):
    m = nn.Linear(4, 4)
    old = nn.Linear.forward

    def change():
        nn.Linear.forward = lambda s, x: old(s, x) * 2

    def build(x):
        return m(x)

    request.addfinalizer(lambda: setattr(nn.Linear, "forward", old))
    assert verdict(build, change) == "followed"


def test_name_added_to_builtins(request):
    builtins.hostile = 2.0

    def build(x):
        return x * hostile  # noqa: F821

    def change():
        builtins.hostile = 3.0

    request.addfinalizer(lambda: delattr(builtins, "hostile"))
    assert verdict(build, change) == "followed"


def test_replaced_function_of_math_is_followed(request):
    old = math.sqrt

    def change():
        math.sqrt = lambda v: 5.0

    def build(x):
        return x * math.sqrt(4.0)

    request.addfinalizer(lambda: setattr(math, "sqrt", old))
    assert verdict(build, change) == "followed"
