"""A module, its graph and its eager copy, to test whether the graph follows a change between two calls."""

import warnings

import torch
from torch import nn

import oneflow as flow


class Base(nn.Module):
    """A linear layer, a function of it, and attributes."""

    def __init__(self, function=lambda m, y: y, **attributes):
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.function(self, self.linear(x))


def graph_of(module, body=None):
    """A training graph of a module on the aten backend, and its eager twin: one forward pass."""
    run = body or (lambda m, x: m(x))

    class Runs(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module
            self.config.set_backend("aten")

        def build(self, x):
            return run(self.module, x)

    return Runs(), lambda x: run(module, x)


def assert_change_is_followed(module, change, body=None, calls=1):
    """The graph equals eager before and after the change, and gives no warning."""
    graph, eager = graph_of(module, body)
    x = torch.randn(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(graph(x), eager(x))
        for _ in range(2):
            graph(x)
        assert len(graph._engine.programs) == 1, graph._engine.last_entry.validity.failure
        before = eager(x)
        change(module)
        assert torch.equal(graph(x), eager(x))
        assert not torch.equal(before, eager(x)), "the change changes nothing"
        graph(x)
        assert len(graph._engine.programs) == 2
