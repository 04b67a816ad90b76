"""Questions about tensor arguments besides their layouts: each later argument answers them, or a warning says
that build() does not see the answer.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from hostile_cases import X
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import oneflow as flow
from oneflow._errors import OneFlowError
from oneflow._upstream.versions import torch_is_before


class Own(torch.Tensor):
    pass


def trained(gradient=None):
    x = X.clone().requires_grad_()
    x.grad = gradient
    return x


def with_attribute():
    x = X.clone()
    x.tag = 3.0
    return x


def with_hook():
    x = trained()
    x.register_hook(lambda gradient: gradient * 5)
    return x


def gradient_in_build(x):
    x.square().sum().backward()
    return x.grad * 1.0


class Built(flow.nn.Graph):
    def __init__(self, build, strict=False):
        super().__init__()
        self.build_function = build
        self.config.set_backend("aten")
        self.config.strict(strict)

    def build(self, x):
        return self.build_function(x)


# what build() asks, an argument for which build() sees the answer, another one for which it does not
QUESTIONS = {
    "whether there is a gradient": (
        lambda x: x * (2.0 if x.grad is None else 3.0),
        trained,
        lambda: trained(X),
    ),
    "a gradient to which backward() adds": (gradient_in_build, trained, lambda: trained(X.clone())),
    "is_leaf": (lambda x: x * (2.0 if x.is_leaf else 3.0), trained, lambda: trained() * 1),
    "grad_fn": (lambda x: x * (2.0 if x.grad_fn is None else 3.0), trained, lambda: trained() * 1),
    "an attribute of the user's": (lambda x: x * getattr(x, "tag", 1.0), X.clone, with_attribute),
    "whether it is a view": (
        lambda x: x * (2.0 if x._base is None else 3.0),
        X.clone,
        lambda: torch.cat([X, X])[:3],
    ),
    "the size of its memory": (
        lambda x: x * x.untyped_storage().nbytes(),
        X.clone,
        lambda: torch.cat([X, X])[:3],
    ),
    "whether it is a parameter": (
        lambda x: x * (2.0 if isinstance(x, nn.Parameter) else 3.0),
        X.clone,
        lambda: nn.Parameter(X, False),
    ),
    "whether it is a buffer": (
        lambda x: x * (2.0 if isinstance(x, nn.Buffer) else 3.0),
        X.clone,
        lambda: nn.Buffer(X.clone()),
    ),
    "a hook, which backward() calls": (lambda x: torch.autograd.grad(x.sum(), x)[0], trained, with_hook),
    "a class of the user's": (lambda x: x * 2.0, X.clone, lambda: X.as_subclass(Own)),
}


if not torch_is_before("2.14"):
    del QUESTIONS["the size of its memory"]  # build() sees it


@pytest.mark.parametrize("question", QUESTIONS)
def test_another_answer_of_a_later_argument_makes_a_program_and_is_named(question):
    build, seen, unseen = QUESTIONS[question]
    graph = Built(build)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert torch.equal(graph(seen()), build(seen()).detach())
    with pytest.warns(UserWarning, match="does not follow"):
        graph(unseen())
    assert torch.equal(graph(seen()), build(seen()).detach())
    assert len(graph._engine.programs) == 2


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_strict_graph_refuses_an_answer_that_build_does_not_see(question):
    build, _, unseen = QUESTIONS[question]
    with pytest.raises(OneFlowError, match="is strict"):
        Built(build, strict=True)(unseen())


def test_place_of_an_argument_in_its_memory_is_followed():
    def build(x):
        return x * (1.0 + x.storage_offset())

    graph = Built(build)
    for argument in (X.clone(), torch.cat([X, X])[3:], X.clone()):
        assert torch.equal(graph(argument), build(argument))
    assert len(graph._engine.programs) == 2


@pytest.mark.skipif(torch_is_before("2.14"), reason="a symbolic tensor of this torch has no such size")
def test_size_of_the_memory_of_an_argument_is_followed():
    build, seen, unseen = (lambda x: x * x.untyped_storage().nbytes()), X.clone, lambda: torch.cat([X, X])[:3]
    graph = Built(build, strict=True)
    for argument in (seen(), unseen(), seen()):
        assert torch.equal(graph(argument), build(argument))


def test_gradient_that_build_removes_first_is_not_named():
    def build(x):
        x.grad = None
        return gradient_in_build(x)

    graph = Built(build)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(graph(trained(X)), 2 * X)
        assert torch.equal(graph(trained()), 2 * X)
    assert len(graph._engine.programs) == 1


@pytest.mark.parametrize("ask", [
    lambda x: x._version,
    lambda x: len(x.__dict__),
    lambda x: len(vars(x)),
], ids=["_version", "__dict__", "vars"])  # fmt: skip
def test_question_that_a_symbolic_tensor_answers_otherwise_is_named(ask):
    with pytest.warns(UserWarning, match="a fact of an argument, which build"):
        Built(lambda x: x * ask(x))(X.clone())


class Doubling(torch.Tensor):
    ndim = 7

    def doubled(self):
        return self * 2

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs)
        return result * 2 if function is torch.Tensor.add else result


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise ValueError("no functions of torch")


def of_class(cls):
    return lambda x: x.as_subclass(cls)


CLASSES_OF_TENSORS = {
    "a method": (lambda x: x.doubled(), of_class(Doubling)),
    "an attribute": (lambda x: torch.ones(x.ndim), of_class(Doubling)),
    "a function of torch": (lambda x: x.add(1.0), of_class(Doubling)),
    "a function that raises": (lambda x: 1 if type(x) is Refusing else 2, of_class(Refusing)),
    "tensors inside": (lambda x: x + 1.0, lambda x: TwoTensor(x, x + 1.0)),
    "an attribute inside": (lambda x: x.b + 1.0, lambda x: TwoTensor(x, x + 1.0)),
}


def plain(x):
    return x.a + x.b if isinstance(x, TwoTensor) else x.as_subclass(torch.Tensor)


@pytest.mark.eager_calls
@pytest.mark.parametrize("case", CLASSES_OF_TENSORS)
def test_class_of_tensors_with_behavior_of_its_own_runs_in_eager_mode(case):
    build, wrap = CLASSES_OF_TENSORS[case]
    expected, step = build(wrap(X.clone())), flow.compile_step(build)
    with pytest.warns(UserWarning, match="methods or attributes of its own"):
        result = step(wrap(X.clone()))
    for _ in range(2):
        assert type(result) is type(expected)
        assert result == expected if type(result) is int else torch.equal(plain(result), plain(expected))
        result = step(wrap(X.clone()))


def test_class_of_tensors_with_behavior_of_its_own_is_no_argument_of_a_program():
    with pytest.raises(OneFlowError, match="argument 'x' of build.*TwoTensor, which has methods"):
        Built(lambda x: x + 1.0, strict=True)(TwoTensor(X, X))


@pytest.mark.parametrize("ask", [
    lambda x: type(x) is torch.Tensor,
    lambda x: torch.Tensor == x.__class__,
    lambda x: type(x + 1) in (torch.Tensor, nn.Parameter),
    lambda x: type(x) in {torch.Tensor},
    lambda x: {torch.Tensor: True}.get(type(x), False),
    lambda x: type(x).__name__ == "Tensor",
], ids=["is", "equal", "in a tuple", "in a set", "key", "name"])  # fmt: skip
def test_class_of_a_symbolic_tensor_is_named(ask):
    with pytest.warns(UserWarning, match="torch's FakeTensor while build"):
        Built(lambda x: x * (2.0 if ask(x) else 3.0))(X.clone())


@pytest.mark.parametrize("ask", [
    lambda x: isinstance(x, torch.Tensor),
    lambda x: type(x) is list,
    lambda x: type(x) is type(x + 1),
    lambda x: x.is_leaf,
    lambda x: hasattr(x, "keys"),
    lambda x: x._is_view(),
])  # fmt: skip
def test_question_that_is_answered_as_in_eager_mode_is_not_named(ask):
    def build(x):
        return x * (2.0 if ask(x) else 3.0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(Built(build)(X.clone()), build(X.clone()))


def test_change_of_a_fact_is_explained():
    graph = Built(lambda x: x * (2.0 if x.is_leaf else 3.0))
    graph(trained())
    with pytest.warns(UserWarning, match="does not follow"):
        graph(trained() * 1)
    assert "x.is_leaf" in graph.explain() and "True" in graph.explain() and "False" in graph.explain()
