"""build() assigns an attribute whose tensor has other names: each name holds afterwards what eager mode
leaves.
"""

import pytest
import torch
from graph_cases import graph_with
from torch import nn


class Names(nn.Module):
    """Two names, `a` and `b`; `init` fills them, and `use` is forward()."""

    def __init__(self, init, use):
        super().__init__()
        init(self)
        self.use = use

    def forward(self, x):
        return self.use(self, x)

    def values(self):
        leaves = torch.utils._pytree.tree_leaves([getattr(self, name) for name in "ab"])
        return [leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def one_tensor(self):
    self.a = self.b = torch.ones(4)


def one_buffer(self):
    self.register_buffer("a", torch.ones(4))
    self.register_buffer("b", self.a)


def buffer_and_attribute(self):
    self.register_buffer("a", torch.ones(4))
    self.b = self.a


def in_a_list(self):
    self.a = torch.ones(4)
    self.b = [self.a, 1]


def in_a_dict(self):
    self.b = torch.ones(4)
    self.a = {"h": self.b}


def twice_in_a_tuple(self):
    self.a, self.b = (torch.ones(4),) * 2, None


def view_of_a_parameter(self):
    self.b = nn.Parameter(torch.ones(4), requires_grad=False)
    self.a = self.b.detach(), torch.zeros(4)


def view_of_the_other(self):
    self.b = torch.ones(8)
    self.a = self.b[:4]


def assign_first(self, x):
    self.a = x * 2 + self.a
    return self.a + (self.b[0] if isinstance(self.b, list) else self.b[:4])


def assign_both_alike(self, x):
    self.a = self.b = x * 2 + self.a
    return self.a + self.b


def assign_both(self, x):
    self.a, self.b = x * 2 + self.a, x + self.b
    return self.a + self.b


def exchange(self, x):
    self.a, self.b = self.b, self.a + x
    return self.a + self.b


def assign_entry(self, x):
    self.a["h"] = x + self.a["h"]
    return self.a["h"] + self.b


def assign_tuple(self, x):
    self.a = x + self.a[0], self.a[1]
    return self.a[0] + self.a[1]


@pytest.mark.parametrize(
    ("init", "use"),
    [
        *((init, use) for init in (one_tensor, one_buffer) for use in (assign_first, assign_both_alike)),
        *((init, use) for init in (one_tensor, one_buffer) for use in (assign_both, exchange)),
        (buffer_and_attribute, assign_first),
        (buffer_and_attribute, exchange),
        (in_a_list, assign_first),
        (in_a_dict, assign_entry),
        (twice_in_a_tuple, assign_tuple),
        (view_of_a_parameter, assign_tuple),
        (view_of_the_other, assign_first),
    ],
    ids=lambda function: function.__name__,
)
def test_each_name_holds_what_eager_mode_leaves(init, use):
    eager, wrapped = Names(init, use), Names(init, use)
    graph = graph_with(lambda self, x: self.m(x), {"m": wrapped})
    for value in (1.0, 2.0, 3.0, 4.0):
        x = torch.full((4,), value)
        assert torch.equal(graph(x), eager(x))
        assert wrapped.values() == eager.values()


@pytest.mark.parametrize("backend", ["aten", pytest.param("inductor", marks=pytest.mark.compiler)])
def test_what_the_caller_keeps_of_the_state_stays_as_it_was(backend):
    class Recurrent(nn.Module):
        def forward(self, x):
            self.hidden = self.hidden * 0.5 + x
            return self.hidden

    model, zeros, kept = Recurrent(), torch.zeros(2), []
    graph = graph_with(lambda self, x: self.m(x), {"m": model})
    graph.config.set_backend(backend)
    for _ in range(2):
        model.hidden = zeros
        for value in (1.0, 2.0):
            graph(torch.full((2,), value))
            kept.append(model.hidden)
    assert [tensor.tolist() for tensor in kept] == [[1.0] * 2, [2.5] * 2] * 2
    assert zeros.tolist() == [0.0, 0.0]
    assert len(graph._engine.programs) == 1
