"""A program stays valid when other code of the process runs torch.compile."""

import functools
import subprocess
import sys

import pytest
import torch
from torch import nn

import oneflow as flow

OPTIMIZERS = ("SGD", "Adam", "AdamW", "RAdam")  # AdamW inherits the method that Dynamo wraps
SCRIPT = """
import torch
from test_compiled_neighbors import OPTIMIZERS, Step

steps = [Step(name) for name in OPTIMIZERS]
for step in steps:
    step(), step()
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
for step in steps:
    step(), step()
    print(type(step.optimizer).__name__, step.graph.explain().splitlines()[0], step.equals_eager())
"""


class Step:
    """A training step as a graph, and the same step in eager mode."""

    def __init__(self, name):
        self.model, self.eager_model = nn.Linear(3, 3), nn.Linear(3, 3)
        self.eager_model.load_state_dict(self.model.state_dict())
        self.optimizer, self.eager_optimizer = (
            getattr(torch.optim, name)(model.parameters(), lr=0.01)
            for model in (self.model, self.eager_model)
        )
        self.graph, self.x = Train(self.model, self.optimizer), torch.randn(2, 3)

    def __call__(self):
        self.graph(self.x)
        self.eager_optimizer.zero_grad()
        self.eager_model(self.x).sum().backward()
        self.eager_optimizer.step()

    def equals_eager(self):
        return all(map(torch.equal, self.model.parameters(), self.eager_model.parameters()))


class Train(flow.nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.config.set_backend("aten")
        self.add_optimizer(optimizer)

    def build(self, x):
        loss = self.model(x).sum()
        loss.backward()
        return loss


def programs(graph):
    return graph.explain().splitlines()[0].split(": ")[1]


def test_torch_compile_of_other_code_leaves_the_program():
    """Dynamo wraps methods of all optimizers at its first call, so the test needs a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=__file__.rpartition("/")[0], capture_output=True, text=True
    )
    assert result.stdout.splitlines() == [
        f"{name} graph Train_{i}: 1 program True" for i, name in enumerate(OPTIMIZERS)
    ], result.stderr


@pytest.fixture
def method(monkeypatch):
    """The method of SGD that Dynamo wraps, not wrapped yet."""
    method = torch.optim.SGD._init_group
    method = getattr(method, "_torchdynamo_orig_callable", method)
    monkeypatch.setattr(torch.optim.SGD, "_init_group", method)
    return method


def test_disabled_method_keeps_the_program(method, monkeypatch):
    step = Step("SGD")
    step()
    monkeypatch.setattr(torch.optim.SGD, "_init_group", torch.compiler.disable(method))
    step()
    assert programs(step.graph) == "1 program"
    monkeypatch.setattr(torch.optim.SGD, "_init_group", method)
    step()
    assert step.equals_eager()


def test_wrapper_of_a_disabled_method_recaptures(method, monkeypatch):
    """functools.wraps copies the marks of Dynamo's wrapper to a function that may do anything."""
    step = Step("SGD")
    step()
    disabled = torch.compiler.disable(method)

    @functools.wraps(disabled)
    def without_parameters(self, group, *lists):
        return False

    monkeypatch.setattr(torch.optim.SGD, "_init_group", without_parameters)
    step()
    assert programs(step.graph) == "2 programs"
    assert step.equals_eager()


def test_disabled_method_of_another_function_recaptures(method, monkeypatch):
    step = Step("SGD")
    step()

    def without_parameters(self, group, *lists):
        return False

    monkeypatch.setattr(torch.optim.SGD, "_init_group", torch.compiler.disable(without_parameters))
    step()
    assert programs(step.graph) == "2 programs"
    assert step.equals_eager()
