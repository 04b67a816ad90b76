"""Texts of tensors and arrays in build(): values and print options are followed, or a warning names it."""

from __future__ import annotations

import logging
import pprint
import warnings

import numpy as np
import pytest
import torch
from hostile_cases import X, verdict
from torch import nn

import oneflow as flow

MAKERS = {
    "repr": repr,
    "str": str,
    "f-string": lambda value: f"{value}",
    "percent": lambda value: "%s" % value,
    "format": "{}".format,
    "of a list": lambda value: repr([value]),
    "pprint": lambda value: pprint.pformat([value]),
}


@pytest.fixture
def options():
    before = np.get_printoptions()
    yield
    torch.set_printoptions(profile="default")
    np.set_printoptions(**before)


@pytest.mark.parametrize("make", MAKERS)
def test_print_options_of_torch_are_followed(options, make):
    tensor, text = torch.tensor([1.23456789]), MAKERS[make]
    change = lambda: torch.set_printoptions(precision=2)
    assert verdict(lambda x: x * len(text(tensor)), change) == "followed"


@pytest.mark.parametrize("make", MAKERS)
def test_print_options_of_numpy_are_followed(options, make):
    array, text = np.array([1.23456789]), MAKERS[make]
    change = lambda: np.set_printoptions(precision=3)
    assert verdict(lambda x: x * len(text(array)), change) == "followed"


@pytest.mark.parametrize("make", MAKERS)
def test_values_of_a_small_tensor_are_followed(make):
    tensor, text = torch.ones(3), MAKERS[make]
    assert verdict(lambda x: x * len(text(tensor)), lambda: tensor.mul_(1e-9)) == "followed"


def test_values_of_a_large_tensor_are_named():
    tensor = torch.ones(10000)
    assert verdict(lambda x: x * len(str(tensor)), lambda: tensor.mul_(1e-9)) == "named"


def test_values_of_a_parameter_are_named():
    layer = nn.Linear(4, 4)
    change = lambda: layer.weight.detach().mul_(1e-9)
    assert verdict(lambda x: x * len(str(layer.weight)), change, layer) == "named"


class Built(flow.nn.Graph):
    def __init__(self, build):
        super().__init__()
        self.layer, self.build_function = nn.Linear(4, 4), build
        self.scale = torch.ones(3)

    def build(self, x):
        return self.build_function(self, x)


@pytest.mark.parametrize("text", [
    lambda self, x: f"{x}",
    lambda self, x: str(x + 1),
    lambda self, x: repr([self.layer(x)]),
])  # fmt: skip
def test_text_of_a_symbolic_tensor_is_named(text):
    with pytest.warns(UserWarning, match="the text of a tensor, whose values"):
        Built(lambda self, x: x * len(text(self, x)))(X)


def test_text_that_is_printed_or_logged_is_not_named(capsys):
    logger = logging.getLogger("test of texts")
    logger.propagate = False  # pytest keeps the arguments of its records
    logger.setLevel(logging.INFO)
    logger.addHandler(handler := logging.Handler())
    handler.emit = lambda record: record.getMessage()

    def build(self, x):
        print("values:", x, self.scale, self.layer.weight)
        logger.info("values: %s %s %s", x, self.scale, self.layer.weight)
        return x * 1.0

    graph = Built(build)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(X)
        graph.scale.mul_(2)
        graph(X)
    assert len(graph._engine.programs) == 1
    assert "is_lazy='True'" in capsys.readouterr().out


def test_logger_that_remembers_its_levels_makes_no_program_and_no_warning():
    logger = logging.getLogger("test of levels")
    logger.setLevel(logging.INFO)

    def build(self, x):
        logger.info("one step")
        return x * 1.0

    graph = Built(build)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(X)
        logger.setLevel(logging.ERROR)
        graph(X)
    assert len(graph._engine.programs) == 1
