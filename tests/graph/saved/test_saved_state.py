"""State that build() binds to attributes: a loaded graph goes on with it as the live graph does."""

import pytest
import torch
from graph_cases import graph_with
from torch import nn

import oneflow as flow


class Buffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(2))

    def forward(self, x):
        self.state = self.state * 0.5 + x
        return self.state * 2


class Attribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = torch.zeros(2)

    def forward(self, x):
        self.state = torch.tanh(self.state + x)
        return self.state


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(2, 3)
        self.state = torch.zeros(1, 3), torch.zeros(1, 3)

    def forward(self, x):
        output, self.state = self.lstm(x[None], self.state)
        return output


class Exchanged(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.zeros(2), torch.ones(2)

    def forward(self, x):
        self.a, self.b = self.b, self.a + x
        return self.a * 2


class Former(nn.Module):
    """It returns the state of the call before, and a view of it."""

    def __init__(self):
        super().__init__()
        self.state, self.entries = torch.zeros(2), {"last": torch.zeros(2)}

    def forward(self, x):
        former, self.state = self.state, self.state + x
        last, self.entries["last"] = self.entries["last"], x * 2
        return former, former[:1], last


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("model", [Buffer, Attribute, Pair, Exchanged, Former])
def test_a_loaded_graph_continues_from_the_state(model, trains, tmp_path):
    torch.manual_seed(0)
    module, weight = model(), nn.Parameter(torch.ones(2))

    def build(self, x):
        results = self.m(x * self.weight) if trains else self.m(x)
        if trains:
            loss = (self.weight * x).sum()
            loss.backward()
        return results

    members = {"m": module, "weight": weight} if trains else {"m": module}
    optimizers = [torch.optim.SGD([weight], 0.1)] if trains else []
    with torch.set_grad_enabled(trains):
        graph = graph_with(build, members, optimizers)
        for value in (1.0, 2.0, 3.0):
            graph(torch.full((2,), value))
        graph.save(tmp_path / "graph")
        loaded = flow.load_graph(tmp_path / "graph")
        for value in (4.0, 5.0, 6.0):
            x = torch.full((2,), value)
            torch.testing.assert_close(loaded(x), graph(x), rtol=0, atol=0)


def test_an_exported_graph_has_the_state_in_its_buffers(tmp_path):
    graph = graph_with(lambda self, x: self.m(x), {"m": Attribute()})
    with torch.no_grad():
        graph(torch.ones(2))
        graph.export(tmp_path / "net.pt2")
        exported = torch.export.load(tmp_path / "net.pt2").module()
        for value in (2.0, 3.0):
            x = torch.full((2,), value)
            assert torch.equal(exported(x), graph(x))
