"""Modules of torch.jit.script in a graph: their attributes, which lie in C++, are followed."""

import io
import warnings

import pytest
import torch
from hostile_cases import X, verdict
from torch import nn

import oneflow as flow

# torch tells that scripts are deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


class Scaled(nn.Module):
    scale: float
    table: list[float]
    mapping: dict[str, float]

    def __init__(self):
        super().__init__()
        self.scale, self.table, self.mapping = 2.0, [1.0, 2.0], {"k": 1.0}
        self.offset = torch.ones(4)
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x) * self.scale + self.offset
        return y * self.table[1] * self.mapping["k"]


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Scaled()

    def forward(self, x):
        return self.inner(x) + 1.0


def loaded():
    memory = io.BytesIO()
    torch.jit.save(torch.jit.script(Scaled()), memory)
    memory.seek(0)
    return torch.jit.load(memory)


CHANGES = {
    "number": lambda module: setattr(module, "scale", 3.0),
    "list": lambda module: setattr(module, "table", [1.0, 3.0]),
    "dict": lambda module: setattr(module, "mapping", {"k": 3.0}),
    "tensor": lambda module: setattr(module, "offset", torch.zeros(4)),
    "parameter": lambda module: setattr(module.layer, "weight", nn.Parameter(torch.ones(4, 4))),
    "values of a parameter": lambda module: module.layer.weight.detach().mul_(2),
}


@pytest.mark.parametrize("change", CHANGES)
def test_attribute_of_a_module_that_is_called(change):
    module = torch.jit.script(Scaled())
    assert verdict(module, lambda: CHANGES[change](module), module) == "followed"


def test_attribute_that_build_reads():
    module = torch.jit.script(Scaled())
    assert verdict(lambda x: x * module.scale, lambda: CHANGES["number"](module), module) == "followed"


def test_attribute_of_a_module_inside_is_followed():
    module = torch.jit.script(Outer())
    assert verdict(module, lambda: CHANGES["number"](module.inner), module) == "followed"


def test_attribute_of_a_loaded_module_is_followed():
    module = loaded()
    assert verdict(module, lambda: CHANGES["number"](module), module) == "followed"


class Holds(flow.nn.Graph):
    def __init__(self, module, build=lambda module, x: module(x)):
        super().__init__()
        self.module, self.build_function = module, build
        self.config.set_backend("aten")

    def build(self, x):
        return self.build_function(self.module, x)


def test_block_of_a_graph_gives_the_attributes_and_the_modules_of_a_script():
    module = torch.jit.script(Outer())
    graph = Holds(module, lambda block, x: block.inner.layer(x) * block.inner.scale)
    assert torch.equal(graph(X), module.inner.layer(X) * 2.0)


def test_calls_without_a_change_make_no_program_and_no_warning():
    graph = Holds(torch.jit.script(Outer()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            graph(X)
    assert len(graph._engine.programs) == 1


def test_counter_that_a_script_keeps_is_named():
    class Counts(nn.Module):
        count: int

        def __init__(self):
            super().__init__()
            self.count = 0

        def forward(self, x):
            self.count += 1
            return x * self.count

    with pytest.warns(UserWarning, match="does not follow"):
        Holds(torch.jit.script(Counts()))(X)


def test_mode_of_a_script_that_changes_after_the_first_call_is_told():
    class Doubles(nn.Module):
        def forward(self, x):
            return x * 2.0 if self.training else x

    graph = Holds(torch.jit.script(Doubles()))
    graph(X)
    graph.module.to(nn.Module).eval()
    with pytest.warns(UserWarning, match="keeps the modes of its first call"):
        assert torch.equal(graph(X), X * 2.0)
