"""Arguments of unusual classes and memory, and hooks around a call: a change is followed, or was named."""

import collections
import warnings

import numpy as np
import pytest
import torch
from hostile_cases import X
from torch import nn

import oneflow as flow


class Outputs(collections.OrderedDict):
    """What models of several libraries return."""

    def to_tuple(self):
        return tuple(self.values())


class Built(flow.nn.Graph):
    def __init__(self, build):
        super().__init__()
        self.build_function = build
        self.config.set_backend("aten")

    def build(self, *arguments):
        return self.build_function(*arguments)


def warning_of(build, *arguments):
    """Return the warning at the capture."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Built(build)(*arguments)
    return "".join(str(warning.message) for warning in caught)


def test_argument_of_a_subclass_of_ordered_dict_is_followed():
    graph = Built(lambda outputs: outputs.to_tuple()[0] * len(outputs))
    for count in (1, 2, 1):
        outputs = Outputs((str(index), X.clone()) for index in range(count))
        assert torch.equal(graph(outputs), X * count)


def test_result_of_a_subclass_of_ordered_dict():
    result = Built(lambda x: Outputs(first=x * 2.0))(X)
    assert type(result) is Outputs
    assert torch.equal(result.to_tuple()[0], X * 2.0)


def test_conjugate_argument_is_followed():
    def build(x):
        return torch.view_as_real(x.resolve_conj()) * (2.0 if x.is_conj() else 3.0)

    graph, numbers = Built(build), torch.complex(X, X)
    for argument in (numbers, numbers.conj(), numbers):
        assert torch.equal(graph(argument), build(argument))


@pytest.mark.parametrize("ask", [
    lambda x, y: x is y,
    lambda x, y: x is not y,
    lambda x, y: id(x) in (1, 2),
    lambda x, y: x.data_ptr() == y.data_ptr(),
    lambda x, y: x.is_inference(),
    lambda x, y: x.is_shared(),
], ids=["is", "is not", "id", "data_ptr", "is_inference", "is_shared"])  # fmt: skip
def test_question_about_the_memory_of_arguments_is_named(ask):
    warning = warning_of(lambda x, y: x * (2.0 if ask(x, y) else 3.0), X, X.clone())
    assert "does not follow" in warning and "test_hostile_inputs.py" in warning


@pytest.mark.parametrize("ask", [
    lambda x, y: x is None,
    lambda x, y: (x + 1) is x,
    lambda x, y: x.shape is y,
], ids=["None", "result", "shape"])  # fmt: skip
def test_question_that_every_call_answers_alike_is_not_named(ask):
    assert not warning_of(lambda x, y: x * (2.0 if ask(x, y) else 3.0), X, X.clone())


def gradient_of_square(x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad((x * x).sum(), x)[0]


def test_hooks_of_saved_tensors_around_a_call():
    graph = Built(gradient_of_square)
    before = graph(X)
    hooks = torch.autograd.graph.saved_tensors_hooks
    with hooks(lambda tensor: tensor * 2, lambda tensor: tensor):
        assert torch.equal(graph(X), before * 2)
    assert torch.equal(graph(X), before)


def test_saving_on_the_cpu_makes_one_program():
    graph = Built(gradient_of_square)
    for _ in range(3):
        with torch.autograd.graph.save_on_cpu():
            graph(X)
    assert len(graph._engine.programs) == 1


def test_hooks_of_a_parameter_without_an_optimizer_are_followed():
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)

    class Gradient(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def build(self, x):
            return torch.autograd.grad(self.layer(x).sum(), self.layer.weight)[0]

    graph = Gradient()
    graph(X)
    handle = layer.weight.register_hook(lambda gradient: gradient * 5)
    assert torch.equal(graph(X), graph.build(X))
    handle.remove()
    assert torch.equal(graph(X), graph.build(X))


def test_attribute_that_the_user_put_on_an_argument_is_named():
    argument = X.clone()
    argument.tag = 3.0
    assert "does not follow" in warning_of(lambda x: x * getattr(x, "tag", 1.0), argument)


def test_attribute_that_an_argument_does_not_have_is_not_named():
    assert not warning_of(lambda x: x * (2.0 if hasattr(x, "keys") else 1.0), X)


def test_identity_of_a_tensor_in_an_attribute():
    layer = nn.Module()
    layer.scale, other = torch.ones(4), torch.ones(4)
    known = {id(other)}
    graph = Built(lambda x: x * (2.0 if id(layer.scale) in known else 3.0) + layer.scale)
    assert torch.equal(graph(X), X * 3.0 + 1.0)
    layer.scale = other
    assert torch.equal(graph(X), X * 2.0 + 1.0)


@pytest.mark.parametrize("index", [[0, 2], np.array([0, 2])], ids=["list", "array"])
def test_index_of_a_tensor_that_is_no_tensor(index):
    graph = Built(lambda x: x[index] * 1.0)
    assert torch.equal(graph(X), X[[0, 2]])
    index[0] = 1
    assert torch.equal(graph(X), X[[1, 2]])
