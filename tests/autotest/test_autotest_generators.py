"""Generators of AutoTest: values, types, tensors, and other libraries."""

import numpy as np
import pytest
import torch
from planted import failure, harness, passes

import oneflow_autotest
from oneflow_autotest.generators import constant, nothing, oneof, random
from oneflow_autotest.generators import tuple as tuple_of


@pytest.fixture
def api():
    return harness()


# ------------------------------------------------------------------ generators
def test_a_generator_binds_its_value_once():
    k = random(1, 1000).to(int)
    assert k.value() == k.value() and (k * 2).value() == 2 * k.value()
    before = k.value()
    assert any(k.eval() != before for _ in range(20))
    untyped = random(1, 3)
    assert untyped.value() is None


def test_generator_made_outside_a_case_is_not_drawn_again(api):
    k = random(1, 1000).to(int)
    seen = set()
    passes(api, lambda api: seen.add(k.value()) or api.random_tensor(1), n=5)
    assert len(seen) == 1


def test_possibility_and_alternatives():
    often = [oneof("a", "b", possibility=0.9).value() for _ in range(300)]
    assert often.count("a") > 220 and "b" in often
    assert {(random(1, 3) | "z" | nothing()).to(int).value().__class__.__name__ for _ in range(60)} == {
        "int",
        "str",
        "Nothing",
    }
    assert tuple_of(constant(1), random(2, 3).to(int)).value() == (1, 2)
    with pytest.raises(ValueError, match="two alternatives, found 3"):
        oneof(1, 2, 3, possibility=0.5)


def test_a_value_of_a_tuple_type_is_a_list():
    """Tests of OneFlow 0.9 tell the sizes of each dimension from one number by isinstance(value, list)."""
    pair = random(2, 3).to(tuple[int, int]).value()
    assert type(pair) is list and pair == [2, 2]
    several = random(2, 3).to(tuple[int, ...]).value()
    assert type(several) is list and set(several) == {2}


def test_types_come_from_annotations_of_the_callee(api):
    def scaled(x, factor: int, more: "float" = 1.0, power: "int | str" = 1):
        assert isinstance(factor, int) and isinstance(more, float) and isinstance(power, int)
        return x**power * factor * more

    f = api.GetDualObject("scaled", scaled, scaled)
    passes(
        api,
        lambda api: f(api.random_tensor(1), random(2, 5), more=random(0, 1), power=random(1, 3)),
        check_graph=False,
    )


def test_types_of_functions_that_torch_has_since_moved_to_cpp(api):
    def run(api):
        x, y = api.random_tensor(2, 3, 4), api.random_tensor(2, 3, 4)
        F = api.torch.nn.functional
        return F.hardshrink(x, lambd=random(0, 1)), F.pairwise_distance(x, y, random(1, 3), keepdim=random())

    passes(api, run, check_graph=False)


def test_tensor_shapes_and_bounds(api):
    for _ in range(20):
        x = api.random_tensor(4, 2, None, 3).pytorch
        assert (
            x.shape[0] == 2
            and x.shape[2] == 3
            and x.dtype == torch.float32
            and x.requires_grad
            and x.min() >= 0
            and x.max() < 1
        )
        i = (
            api.random_tensor(1, 5, low=-3, high=4, dtype=int).oneflow
            if hasattr(api.torch, "oneflow")
            else None
        )
        assert i.dtype == torch.int64 and not i.requires_grad and i.min() >= -3 and i.max() < 4
    assert api.random_tensor(0).pytorch.shape == ()
    with pytest.raises(ValueError, match="below 32 MB"):
        api.random_tensor(1, 10_000_000)


def test_another_library_with_tensors_of_its_own():
    """The candidate need not share torch's tensor class."""

    class Array:
        def __init__(self, value, requires_grad=False):
            self.value, self.grad, self.requires_grad, self.is_leaf = (
                np.asarray(value),
                None,
                requires_grad,
                True,
            )

        shape = property(lambda self: self.value.shape)
        detach = cpu = lambda self: self
        numpy = lambda self: self.value
        __add__ = lambda self, other: Array(self.value + getattr(other, "value", other))

    class Lib:
        Tensor = Array
        tensor = staticmethod(lambda a, **k: Array(a))
        exp = staticmethod(lambda x: Array(np.exp(x.value)))
        log = staticmethod(lambda x: Array(np.log2(x.value)))

    api = oneflow_autotest.bind(torch, Lib, names=("torch", "arrays"))
    f = lambda name: (
        lambda api: getattr(api.torch, name)(api.random_tensor(2, low=1, high=2, requires_grad=False) + 1)
    )
    passes(api, f("exp"), auto_backward=False)
    assert failure(api, f("log"), auto_backward=False).check == "values"
