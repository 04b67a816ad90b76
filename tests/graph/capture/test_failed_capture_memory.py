"""A failed capture keeps no tensor alive, neither in the error nor after the error is freed."""

import gc
import weakref

import pytest
import torch
from torch import nn

import oneflow as flow
from oneflow._graph.capture.recorder import Recorder


def raise_error(model, x):
    model(x).relu()
    raise ValueError("stop")


def branch_on_a_value(model, x):
    return x if model(x).sum() > 0 else -x


def call_with_wrong_shapes(model, x):
    return model(x) @ torch.ones(7, 7)


def backward_twice(model, x):
    loss = model(x).sum()
    loss.backward()
    loss.backward()
    return loss


def branch_on_a_size_then_raise(model, x):
    chosen = x[x[:, 0] > 0]
    if len(chosen) > 1:
        raise ValueError("many rows")
    raise ValueError("few rows")


FAILING = (
    raise_error,
    branch_on_a_value,
    call_with_wrong_shapes,
    backward_twice,
    branch_on_a_size_then_raise,
)


class Failing(flow.nn.Graph):
    def __init__(self, model, body, trains=True):
        super().__init__()
        self.model, self.body = model, body
        if trains:
            self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    def build(self, x):
        return self.body(self.model, x)


@pytest.fixture(autouse=True)
def without_collector():
    """Reference counts must be enough: the collector may run long after the memory was needed elsewhere."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("body", FAILING)
def test_dropped_error_frees_the_argument(body):
    graph, x = Failing(nn.Linear(4, 4), body), torch.randn(3, 4)
    argument = weakref.ref(x)
    with pytest.raises(Exception, match=r"."):
        graph(x)
    del x
    assert argument() is None


@pytest.mark.parametrize("body", FAILING)
def test_dropped_error_frees_a_weight_that_is_replaced(body):
    model = nn.Linear(4, 4)
    graph = Failing(model, body, trains=False)
    with pytest.raises(Exception, match=r"."):
        graph(torch.randn(3, 4))
    weight = weakref.ref(model.weight)
    model.weight = nn.Parameter(torch.ones(4, 4))
    assert weight() is None


@pytest.mark.parametrize("body", FAILING)
def test_error_that_is_kept_holds_no_gradients(body):
    model = nn.Linear(4, 4)
    model(torch.ones(1, 4)).sum().backward()
    gradient = weakref.ref(model.weight.grad)
    with pytest.raises(Exception, match=r".") as error:
        Failing(model, body)(torch.randn(3, 4))
    assert model.weight.grad is gradient() and error.value is not None
    model.zero_grad()
    assert gradient() is None


@pytest.mark.parametrize("body", FAILING)
def test_error_that_is_kept_holds_no_values_of_the_recorder(body):
    """The frames of the error hold the recorder; its nodes held the arguments and weights as examples."""
    with pytest.raises(Exception, match=r".") as error:
        Failing(nn.Linear(4, 4), body)(torch.randn(3, 4))
    recorders = [o for o in gc.get_objects() if type(o) is Recorder]
    assert error.value is not None
    for recorder in recorders:
        assert not recorder.lifted and not recorder.twins and not recorder.constants
        assert not any("value" in node.meta for node in recorder.graph.nodes)
