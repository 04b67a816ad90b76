"""build() assigns to an attribute what is no tensor where a tensor was, or the other way around."""

import types

import pytest
import torch
from graph_cases import graph_with
from torch import nn

import oneflow as flow

pytestmark = pytest.mark.eager_calls


def value_or_zero(value):
    return 0 if value is None else value


def none(self, x):
    result = x * 2 if self.state is None else x + self.state
    self.state = None
    return result


def none_and_a_tensor(self, x):
    result = x + value_or_zero(self.state)
    self.state = None if self.state is not None else x * 2
    return result


def none_and_a_buffer(self, x):
    result = x + value_or_zero(self.buffer)
    self.buffer = None if self.buffer is not None else x * 2
    return result


def number(self, x):
    result = x + self.state
    self.state = 5.0 if isinstance(self.state, torch.Tensor) else x * 3
    return result


def empty_list(self, x):
    result = x if isinstance(self.state, list) else x + self.state
    self.state = [] if not isinstance(self.state, list) else x * 3
    return result


def tuple_of_constants(self, x):
    result = x if isinstance(self.state, tuple) else x + self.state
    self.state = (None, 2) if not isinstance(self.state, tuple) else x * 3
    return result


def tuple_of_none(self, x):
    result = x + value_or_zero(self.pair[0])
    self.pair = (None,) if self.pair[0] is not None else (x * 2,)
    return result


def no_tuple(self, x):
    result = x + (0 if self.pair is None else self.pair[0])
    self.pair = None if self.pair is not None else (x * 2,)
    return result


def constant_tensor(self, x):
    result = x * 2 if self.state is None else x + self.state
    self.state = None if self.state is not None else torch.ones(2) * 7
    return result


def entry(self, x):
    result = x + value_or_zero(self.entries["k"])
    self.entries["k"] = None if self.entries["k"] is not None else x * 2
    return result


def element(self, x):
    result = x + value_or_zero(self.elements[0])
    self.elements[0] = None if self.elements[0] is not None else x * 2
    return result


def attribute_of_another_object(self, x):
    result = x + value_or_zero(self.other.state)
    self.other.state = None if self.other.state is not None else x * 2
    return result


def deleted(self, x):
    if not hasattr(self, "state"):
        self.state = x * 2
        return x
    result = x + self.state
    del self.state
    return result


class Holder(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.use, self.state, self.pair = use, torch.ones(2), (torch.ones(2),)
        self.entries, self.elements = {"k": torch.ones(2)}, [torch.ones(2)]
        self.other = types.SimpleNamespace(state=torch.ones(2))
        self.register_buffer("buffer", torch.ones(2))

    def forward(self, x):
        return self.use(self, x)

    def values(self):
        held = getattr(self, "state", "missing"), self.pair, self.entries, self.elements, self.other.state
        return str((*held, self.buffer))


USES = (none, none_and_a_tensor, none_and_a_buffer, number, empty_list, tuple_of_constants, tuple_of_none)
USES += (no_tuple, constant_tensor, entry, element, attribute_of_another_object, deleted)


@pytest.mark.filterwarnings("ignore:.*runs in eager mode:UserWarning")
@pytest.mark.parametrize("is_compiled_step", [False, True], ids=["graph", "compiled_step"])
@pytest.mark.parametrize("use", USES)
def test_each_call_leaves_what_eager_mode_leaves(use, is_compiled_step):
    eager, wrapped = Holder(use), Holder(use)
    if is_compiled_step:
        step = flow.compile_step(lambda x: wrapped(x), backend="aten")
    else:
        step = graph_with(lambda self, x: self.m(x), {"m": wrapped})
    for value in range(6):
        x = torch.full((2,), value + 1.0)
        assert torch.equal(step(x), eager(x))
        assert wrapped.values() == eager.values()
