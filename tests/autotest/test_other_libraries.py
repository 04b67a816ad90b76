"""Candidates that are not like torch: without backward(), without nn.Module, with other dtypes or classes."""

import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from planted import failure, passes

import oneflow_autotest
from oneflow_autotest import Mismatch
from oneflow_autotest.generators import random


def vjp(program, inputs, output_gradients):
    """The gradients of a program of arrays, by a tape that the arrays share."""
    leaves = [Array(x.values, []) for x in inputs]
    outputs = program(*leaves)
    found = [np.zeros_like(x.values) for x in inputs]
    for out, gradient in zip(outputs, output_gradients):
        out.pull(gradient.values, leaves, found)
    return [Array(g) for g in found]


class Array:
    """An array of a functional library: no requires_grad, no backward(), no attributes to set."""

    __slots__ = ("values", "parents")

    def __init__(self, values, parents=()):
        self.values, self.parents = np.asarray(values), parents

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __mul__(self, other):
        return Array(self.values * other, [(self, lambda g: g * other)])

    def pull(self, gradient, leaves, found):
        for i, leaf in enumerate(leaves):
            if leaf is self:
                found[i] = found[i] + gradient
        for parent, function in self.parents:
            parent.pull(function(gradient), leaves, found)


def asarray(values):
    """Integers have 32 bits in this library."""
    values = np.asarray(values)
    return Array(values.astype(np.int32) if values.dtype == np.int64 else values)


def exp(x):
    y = np.exp(x.values)
    return Array(y, [(x, lambda g: g * y)])


def wrong_exp(x):
    y = np.exp(x.values)
    return Array(y, [(x, lambda g: g * y * 1.5)])


def functional(**functions):
    library = types.SimpleNamespace(__name__="test_other_libraries", asarray=asarray, ndarray=Array, exp=exp)
    vars(library).update(functions)
    return oneflow_autotest.bind(
        torch, library, names=("torch", "functional"), grad=vjp, dtypes={"int64": "int32"}
    )


def program(api):
    x, y = (api.random_tensor(2, 3, 2, low=-1, high=1) for _ in range(2))
    return api.torch.exp(x) * 2, y * 3


def test_gradients_of_a_library_without_backward_are_compared():
    passes(functional(), program, check_graph=False)
    e = failure(functional(exp=wrong_exp), program)
    assert e.check == "gradient" and "the gradient of x0 differs" in str(e)


def test_the_script_of_such_a_gradient_fails_alone(tmp_path):
    e = failure(functional(exp=wrong_exp), program)
    lines = str(e).split("-" * 78)[1]
    library = (
        "from test_other_libraries import *\nfrom test_other_libraries import wrong_exp as exp\n"
        "ndarray = Array\n"
    )
    (tmp_path / "buggy_functional.py").write_text(library)
    (tmp_path / "good_functional.py").write_text("from test_other_libraries import *\nndarray = Array\n")
    for name, code in (("buggy_functional", 1), ("good_functional", 0)):
        script = tmp_path / f"with_{name}.py"
        script.write_text(lines.replace("import test_other_libraries as flow", f"import {name} as flow"))
        path = f"{tmp_path}:{__file__.rpartition('/')[0]}"
        ran = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, env={"PYTHONPATH": path}
        )
        assert ran.returncode == code, ran.stdout + ran.stderr + lines
    assert (
        "AssertionError: the gradient of x0 differs"
        in subprocess.run(
            [sys.executable, str(tmp_path / "with_buggy_functional.py")],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": path},
        ).stderr
    )


def test_a_gradient_function_must_return_a_gradient_for_each_input():
    library = types.SimpleNamespace(asarray=asarray, ndarray=Array, exp=exp)
    api = oneflow_autotest.bind(torch, library, grad=lambda program, inputs, gradients: [])
    e = failure(api, program)
    assert "a gradient for each of the 2 inputs, found 0" in str(e)


def test_a_gradient_function_for_a_library_with_backward_is_refused():
    with pytest.raises(ValueError, match="Tensor has requires_grad_.*leave grad out"):
        oneflow_autotest.bind(torch, torch, grad=vjp)


def test_a_dtype_of_the_library_may_stand_for_one_of_torch():
    def whole_numbers(api):
        return api.random_tensor(1, 3, low=0, high=5, dtype=int, requires_grad=False) * 2

    passes(functional(), whole_numbers, check_graph=False)
    library = types.SimpleNamespace(asarray=asarray, ndarray=Array)
    without = oneflow_autotest.bind(torch, library, grad=vjp)
    assert failure(without, whole_numbers).check == "dtype"


def test_names_of_dtypes_are_checked():
    with pytest.raises(ValueError, match="names of torch's dtypes, such as 'int64', found 'long int'"):
        oneflow_autotest.bind(torch, torch, dtypes={"int64": "long int"})


# ---------------------------------------------------------------------- modules without nn.Module
class Layer:
    """A linear layer with the methods of a module, in a library without nn.Module."""

    def __init__(self, n, m):
        self.inner = torch.nn.Linear(n, m)
        self.training = True

        for name in ("named_parameters", "named_buffers", "parameters", "state_dict", "load_state_dict"):
            setattr(self, name, getattr(self.inner, name))
        self.register_forward_hook, self.to = self.inner.register_forward_hook, self.inner.to

    def train(self, mode=True):
        self.training = mode
        return self

    def eval(self):
        return self.train(False)

    def named_modules(self):
        return [("", self)]

    def __call__(self, x):
        return self.inner(x)


class WrongLayer(Layer):
    def __call__(self, x):
        return self.inner(x) + self.inner.bias.detach()


class NoModule:
    def __init__(self, n, m):
        pass

    def __call__(self, x):
        return x


def layers(linear):
    library = types.SimpleNamespace(
        __name__="layers", Tensor=torch.Tensor, tensor=torch.tensor, nn=types.SimpleNamespace(Linear=linear)
    )
    return oneflow_autotest.bind(torch, library, names=("torch", "layers"), level="other implementation")


def linear_program(api):
    n, m = random(1, 5).to(int), random(1, 5).to(int)
    return api.torch.nn.Linear(n, m)(api.random_tensor(2, 3, n))


def test_an_object_with_the_methods_of_a_module_gets_the_weights_and_is_compared():
    passes(layers(Layer), linear_program, check_graph=False)
    assert failure(layers(WrongLayer), linear_program).check == "values"


def test_an_object_that_can_take_no_weights_is_an_error():
    api = layers(NoModule)
    with pytest.raises(
        TypeError, match="torch made a Linear with parameters or buffers, and layers an object of"
    ):
        api.autotest(n=2, check_graph=False)(lambda case: linear_program(api))(None)


# ---------------------------------------------------------------------- classes of tensors, plain values
class MyTensor(torch.Tensor):
    pass


def test_a_candidate_may_have_a_subclass_of_tensor_while_oneflow_is_imported():
    library = types.SimpleNamespace(
        __name__="mine",
        Tensor=MyTensor,
        tensor=lambda a: torch.tensor(a).as_subclass(MyTensor),
        exp=torch.exp,
    )
    api = oneflow_autotest.bind(torch, library, names=("torch", "mine"))
    passes(api, lambda api: api.torch.exp(api.random_tensor(2)), check_graph=False)
    library.exp = lambda x: torch.exp(x) + 1
    assert failure(api, lambda api: api.torch.exp(api.random_tensor(2))).check == "values"


def numbers(**functions):
    library = types.SimpleNamespace(__name__="numbers", Tensor=torch.Tensor, tensor=torch.tensor, nn=torch.nn)
    vars(library).update(functions)
    return oneflow_autotest.bind(torch, library, names=("torch", "numbers"), level="other implementation")


@pytest.mark.parametrize(
    "use",
    [
        lambda api, x: float(api.torch.initial(x)),
        lambda api, x: x * float(api.torch.initial(x)),
        lambda api, x: complex(api.torch.initial(x)),
        lambda api, x: (api.torch.initial(x), x * 2)[1],
    ],
)
def test_a_plain_number_is_compared_where_the_test_uses_it(use, monkeypatch):
    monkeypatch.setattr(torch, "initial", lambda x: 1.5, raising=False)
    passes(numbers(initial=lambda x: 1.5), lambda api: use(api, api.random_tensor(2)), check_graph=False)
    e = failure(numbers(initial=lambda x: 2.5), lambda api: use(api, api.random_tensor(2)))
    assert e.check == "values" and "is 1.5 in torch and 2.5 in numbers" in str(e)


def test_addresses_are_not_compared():
    passes(
        numbers(),
        lambda api: (lambda x: (x.data_ptr(), x.stride(), x * 2)[2])(api.random_tensor(2)),
        check_graph=False,
    )


def test_keys_and_values_of_a_dual_dict_can_be_iterated(monkeypatch):
    monkeypatch.setattr(torch, "parts", lambda x: {"a": x * 2, "b": x * 3}, raising=False)

    def program(api):
        parts = api.torch.parts(api.random_tensor(2))
        keys = parts.keys()
        assert [key.plain() for key in keys] == ["a", "b"]
        return list(parts.values())

    passes(numbers(parts=lambda x: {"a": x * 2, "b": x * 3}), program, check_graph=False)
    e = failure(numbers(parts=lambda x: {"a": x * 2, "b": x * 4}), program)
    assert isinstance(e, Mismatch) and e.check == "values"
