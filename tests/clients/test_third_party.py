"""How published PyTorch libraries use the torch namespace: tables of functions, lists of classes, star
imports.
"""

import importlib

import pytest
import torch as real

import oneflow
import oneflow.mock_torch as mock
from oneflow import _bind
from oneflow._tables.dialect import DIALECT, EXTENDED


@pytest.fixture
def mocked():
    with mock.enable():
        yield


def test_a_table_of_functions_for_torch_function(mocked):
    import torch

    handlers = {
        torch.add: "add",
        torch.matmul: "matmul",
        torch.cat: "cat",
        torch.nn.functional.relu: "relu",
        torch.linalg.norm: "norm",
        torch.Tensor.add: "method",
    }

    class Lazy:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return handlers[func]

    lazy, ones = Lazy(), torch.ones(2)
    assert (
        torch.add(ones, lazy) == "add"
        and torch.matmul(lazy, ones) == "matmul"
        and torch.cat([ones, lazy]) == "cat"
    )
    assert (
        torch.nn.functional.relu(lazy) == "relu"
        and torch.linalg.norm(lazy) == "norm"
        and ones + lazy == "method"
    )


def test_extended_functions_are_torchs_own_in_torchs_dialect_only():
    before = oneflow.matmul, oneflow.cat
    with mock.enable():
        for space, names in EXTENDED.items():
            for name in names.split():
                theirs = getattr(importlib.import_module("torch" + space[len("oneflow") :]), name)
                assert getattr(importlib.import_module(space), name) is theirs, f"{space}.{name}"
                assert _bind.ours(space, name) is not theirs, f"{space}.{name}"
    assert before == (oneflow.matmul, oneflow.cat) and oneflow.cat is not real.cat


def test_types_of_modules_are_torchs(mocked):
    import torch
    import torch.nn as nn

    layer = nn.TransformerEncoderLayer(4, 2, 8)  # made inside torch
    assert (
        type(layer.dropout) is nn.Dropout
        and type(nn.Embedding(2, 2)).__module__.startswith("torch.nn")
        and type(torch.Generator()) is torch.Generator
    )


def test_every_name_that_torch_has_too_is_listed_or_stays_ours_for_a_reason():
    places = (
        "zeros ones empty full eye arange linspace logspace zeros_like ones_like full_like empty_like"
        " empty_strided hann_window"
    )
    draws = "rand randn randint randint_like rand_like randn_like randperm normal"
    files = "save load"
    for space in EXTENDED:
        theirs = importlib.import_module("torch" + space[len("oneflow") :])
        rows = {n for n in {**_bind.function_rows(space), **_bind.rename_rows(space)} if hasattr(theirs, n)}
        rows -= {n for n in rows if f"{space}.{n}" in DIALECT}
        stay = {*places.split(), *draws.split(), *files.split()} if space == "oneflow" else set()
        assert rows == set(EXTENDED[space].split()) | stay, space


@pytest.mark.parametrize(
    "path", ["optim", "optim.lr_scheduler", "nn.modules.activation", "nn.modules.loss", "nn.modules.pooling"]
)
def test_classes_can_be_listed_by_vars(mocked, path):
    ours, theirs = importlib.import_module(f"oneflow.{path}"), importlib.import_module(f"torch.{path}")
    missing = {
        n for n, value in vars(theirs).items() if isinstance(value, type) and vars(ours).get(n) != value
    }
    assert not missing


@pytest.mark.parametrize(
    "path",
    [
        "optim",
        "optim.lr_scheduler",
        "optim.swa_utils",
        "nn",
        "nn.modules.activation",
        "nn.modules.loss",
        "nn.utils",
        "nn.functional",
        "utils.data",
        "utils.checkpoint",
        "autograd",
        "amp",
    ],
)
@pytest.mark.parametrize("dialect", ["oneflow", "torch"])
def test_star_imports_bring_all_that_torchs_bring(path, dialect):
    before = oneflow.get_dialect()
    oneflow.set_dialect(dialect)
    try:
        theirs, ours = {}, {}
        exec(f"from torch.{path} import *", theirs)
        exec(f"from oneflow.{path} import *", ours)
    finally:
        oneflow.set_dialect(before)
    assert not set(theirs) - set(ours)


def test_a_star_import_keeps_oneflows_own_names():
    space = {}
    exec("from oneflow.optim import *\nfrom oneflow.optim.lr_scheduler import *", space)
    assert (
        space["LAMB"] is oneflow.optim.LAMB
        and space["WarmUpLR"] is oneflow.optim.lr_scheduler.WarmUpLR
        and space["Adam"] is oneflow.optim.Adam
    )


def own_classes(cls):
    """Those below `cls` that are of the package of the class above them, as class_resolver (of PyKEEN) lists
    optimizers and schedules.
    """
    for below in cls.__subclasses__():
        yield from own_classes(below)
        if below.__module__.split(".")[0] == cls.__module__.split(".")[0]:
            yield below


@pytest.mark.parametrize(
    "base, few",
    [(real.optim.Optimizer, {"Adam", "SGD"}), (real.optim.lr_scheduler.LRScheduler, {"StepLR", "LambdaLR"})],
    ids=["optim", "lr_scheduler"],
)
def test_a_registry_made_of_subclasses_finds_each_name_once_under_mock_torch(base, few):
    with mock.enable():
        names = [cls.__name__ for cls in own_classes(base)]
    assert few <= {*names} and len(names) == len({*names})
    assert oneflow.optim.LAMB in oneflow.optim.Optimizer.__subclasses__()
