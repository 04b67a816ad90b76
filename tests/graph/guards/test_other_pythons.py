"""Other Pythons: a version that the observer does not support, and one without the compiled guard library."""

import types

import pytest
import torch
from graph_cases import graph_of
from torch import nn

from oneflow._graph import observe
from oneflow._graph.observe import messages
from oneflow._graph.observe.guards import checkers


@pytest.fixture(autouse=True, params=["unknown version", "no compiler"])
def other_python(request, monkeypatch):
    """An unknown version guards fewer reads. Without a compiler, Python compares each place."""
    if request.param == "unknown version":
        monkeypatch.setattr(observe, "VERSION", (3, 99))
    else:
        monkeypatch.setattr(checkers, "_guards", None)
    observe.can_observe.cache_clear()
    checkers.probed_features.cache_clear()
    assert observe.can_observe() == (request.param == "no compiler")
    yield
    monkeypatch.undo()
    observe.can_observe.cache_clear()
    checkers.probed_features.cache_clear()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.scale = 2.0

    def forward(self, x):
        return self.second(self.first(x).relu()) * self.scale


class Negative(Net):
    def forward(self, x):
        return -super().forward(x)


def replace_layer(net):
    net.second = nn.Linear(3, 3)


def remove_bias(net):
    net.first.bias = None


CHANGES = {
    "an attribute": lambda net: setattr(net, "scale", 3.0),
    "a hook": lambda net: net.first.register_forward_hook(lambda module, args, result: result + 1),
    "a forward": lambda net: setattr(net.first, "forward", lambda x: x),
    "a class": lambda net: setattr(net, "__class__", Negative),
    "a layer": replace_layer,
    "a parameter that is None": remove_bias,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_followed(name):
    torch.manual_seed(0)
    net, x = Net(), torch.randn(2, 3)
    step = graph_of(lambda x: net(x), net=net)
    assert torch.equal(step(x), net(x))
    CHANGES[name](net)
    assert torch.equal(step(x), net(x))
    assert len(step._engine.programs) == 2
    step(x)
    assert len(step._engine.programs) == 2


def test_training_keeps_its_program_when_hooks_of_other_modules_are_added():
    net = Net()
    step = graph_of(lambda x: net(x).sum().backward(), torch.optim.SGD(net.parameters(), lr=0.1), net=net)
    for _ in range(3):
        step(torch.ones(2, 3))
        nn.ReLU().register_forward_hook(lambda module, args, result: None)
    assert len(step._engine.programs) == 1


def test_a_parameter_frozen_alone_and_changed_optimizers_are_followed():
    def losses(as_graph):
        torch.manual_seed(0)
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def build(x):
            loss = net(x).square().mean()
            loss.backward()
            return loss

        step, values = graph_of(build, optimizer, net=net) if as_graph else build, []
        for k in range(8):
            if k == 2:
                net.first.bias.requires_grad_(False)
                net.first.bias.grad = None
            if k == 4:
                optimizer.load_state_dict(optimizer.state_dict())
            if k == 6:
                optimizer.param_groups[0]["params"].pop()
                net.second.bias.grad = None
            optimizer.zero_grad()
            values.append(step(torch.ones(2, 3)).item())
            if not as_graph:
                optimizer.step()
        return values

    assert losses(True) == losses(False)


def test_fewer_guards_are_announced_once(recwarn):
    messages.report_fewer_guards.cache_clear()
    for _ in range(2):
        graph_of(lambda x: x + 1)(torch.ones(2))
    announced = [w for w in recwarn if "cannot be observed" in str(w.message)]
    assert len(announced) == (not observe.can_observe())


def test_a_library_of_another_version_is_not_used(monkeypatch):
    monkeypatch.setattr(checkers, "_guards", types.SimpleNamespace(build=None))
    checkers.probed_features.cache_clear()
    with pytest.warns(UserWarning, match="compiled guards of nn.Graph belong to another version"):
        assert checkers.probed_features() is None
