"""Tensors made of arrays, tensors and parameters: who owns the memory, and what stays torch's."""

import numpy as np
import pytest
import torch
from tensor_table_cases import leaf, original, t

import oneflow as flow


def test_numpy_shares_memory_where_torch_gives_an_array_and_copies_where_it_refuses():
    x, w = t(), leaf()
    x.numpy()[0] = 7
    before = w.numpy()
    with torch.no_grad():
        w.add_(1)
    assert (
        x[0].item() == 7
        and before.tolist() == [1.0, 2.0, -3.0]
        and t().numpy(force=True).tolist() == [1.0, 2.0, -3.0]
    )
    with pytest.raises(TypeError, match="can't convert meta device type tensor to numpy"):
        torch.ones(2, device="meta").numpy()


CONSTRUCTORS = [
    flow.Tensor,
    flow.FloatTensor,
    lambda data: flow.Tensor(data, device="cpu"),
    lambda data: flow.nn.Parameter(flow.Tensor(data)),
]


@pytest.mark.parametrize("make", CONSTRUCTORS)
def test_a_tensor_of_an_array_owns_its_memory(make):
    array = np.zeros(2, dtype="float32")
    x = make(array)
    x.data += 1
    assert (
        array.tolist() == [0.0, 0.0]
        and x.tolist() == [1.0, 1.0]
        and type(x) in (torch.Tensor, torch.nn.Parameter)
    )


@pytest.mark.parametrize("make", CONSTRUCTORS)
def test_a_tensor_of_a_tensor_owns_its_memory(make):
    x = torch.zeros(2)
    y = make(x)
    y.data += 1
    assert (
        x.tolist() == [0.0, 0.0]
        and y.tolist() == [1.0, 1.0]
        and type(y) in (torch.Tensor, torch.nn.Parameter)
    )


def test_a_tensor_of_a_parameter_can_be_written_and_carries_its_gradient():
    w = leaf()
    y = flow.Tensor(w)
    y[0] = 7.0
    (y * y).sum().backward()
    assert (
        w.tolist() == [1.0, 2.0, -3.0]
        and w.grad.tolist() == [0.0, 4.0, -6.0]
        and flow.Tensor(torch.tensor([1, 2])).dtype is flow.int64
    )


def test_a_constructor_call_that_neither_library_knows():
    for args, more in [
        ((2, 3), {"pin_memory": True}),
        (("x",), {}),
        (("x",), {"dtype": flow.float32}),
        ((object(),), {"device": "cpu"}),
        ((2, -3), {}),
        ((2,), {"placement": flow.placement("cpu", [0])}),
    ]:
        with pytest.raises((TypeError, RuntimeError)):
            flow.Tensor(*args, **more)


def test_a_tensor_differs_from_an_array_element_by_element():
    x, array = t(), np.array([1, 5, -3], dtype="float32")
    # so torch's answer is that of two unrelated objects: True
    assert original("__ne__")(x, array) is NotImplemented
    assert (x != array).tolist() == (array != x).tolist() == [False, True, False] and (x != "a") is True


def test_subclasses_of_tensor_are_made_as_before():
    class Named(torch.Tensor):
        def __new__(cls, values, name="x"):
            return torch.Tensor._make_subclass(cls, torch.as_tensor(values))

        def __init__(self, values, name="x"):
            super().__init__()
            self.label = name

    assert Named(np.ones(2, dtype="float32"), name="a").label == "a" and torch.Tensor(2, 3).shape == (2, 3)
    compiled = torch.compile(lambda x: x + torch.Tensor([1.0, 2.0]), backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [2.0, 3.0]


def test_numpy_on_the_left():
    a = np.array([1.0, 2.0, 4.0])
    for got, want in (
        (a + leaf(), [2.0, 4.0, 1.0]),
        (a - t(), [0.0, 0.0, 7.0]),
        (a * t(), [1.0, 4.0, -12.0]),
        (a // t(), [1.0, 1.0, -2.0]),
        (a % t(), [0.0, 0.0, -2.0]),
    ):
        assert type(got) is np.ndarray and got.dtype == np.float64 and got.tolist() == want
    assert np.array_equal(a ** t(), a ** np.array([1.0, 2.0, -3.0]))
    for got in (np.float32(2) * t(), np.exp(t()), a / t(), 2 + t(), 2 - t(), t() + 1):  # torch's
        assert isinstance(got, torch.Tensor)
    with pytest.raises(TypeError):
        "a" + t()
