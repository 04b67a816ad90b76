"""No program is silently stale: a graph follows changes of modules, classes, hooks and options."""

import warnings

import pytest
import torch
import torch._dynamo
from stale_cases import Base, assert_change_is_followed, graph_of
from torch import nn


def test_a_class_attribute_is_followed():
    class Own(Base):
        scale = 1.0

        def forward(self, x):
            return self.linear(x) * self.scale

    assert_change_is_followed(Own(), lambda m: setattr(Own, "scale", 3.0))


def test_a_class_as_a_namespace_is_followed():
    class Settings:
        scale = 1.0

    assert_change_is_followed(
        Base(), lambda m: setattr(Settings, "scale", 3.0), lambda m, x: m(x) * Settings.scale
    )


def test_a_replaced_method_is_followed():
    class Own(Base):
        def forward(self, x):
            return self.linear(x)

    assert_change_is_followed(Own(), lambda m: setattr(Own, "forward", lambda self, x: self.linear(x) * 3))


def test_a_forward_of_the_instance_is_followed():
    def change(module):
        before = module.linear.forward
        module.linear.forward = lambda x: before(x) * 3

    assert_change_is_followed(Base(), change)


def test_a_forward_of_the_instance_is_followed_after_torch_compile():
    """torch.compile notes for the code of modules that their frames are none of its business."""
    compiled = nn.Sequential(nn.Linear(3, 3))
    compiled.compile(backend="eager")
    compiled(torch.ones(2, 3))
    test_a_forward_of_the_instance_is_followed()


COMPILED_SCALE = 2.0


def scaled(x, power):
    return x**power * COMPILED_SCALE


def test_a_function_that_torch_compile_has_given_up_is_followed(monkeypatch):
    compiled = torch.compile(scaled, backend="eager", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=2):
        for power in range(4):
            compiled(torch.ones(3), power)
    assert_change_is_followed(
        Base(lambda m, y: scaled(y, 2)), lambda m: monkeypatch.setitem(globals(), "COMPILED_SCALE", 5.0)
    )


class Sized:
    """Asks a global in a special method, which no call in the source names."""

    def __len__(self):
        return LENGTH


LENGTH = 3


def test_a_special_method_that_torch_compile_has_met_is_followed(monkeypatch):
    sized = Sized()
    torch.compile(lambda x: x * len(sized), backend="eager")(torch.ones(2))
    assert_change_is_followed(
        Base(lambda m, y: y * len(sized)), lambda m: monkeypatch.setitem(globals(), "LENGTH", 5)
    )


class CompiledInside(Base):
    @torch.compile(backend="eager")
    def scaled(self, x):
        return self.linear(x) * self.scale

    def forward(self, x):
        return self.scaled(x)


@pytest.mark.parametrize("compiled_first", [False, True])
def test_a_method_under_torch_compile_is_captured_and_compiles_again(compiled_first):
    module = CompiledInside(scale=2.0)
    if compiled_first:
        module(torch.ones(3, 4))
    assert_change_is_followed(module, lambda m: setattr(m, "scale", 3.0))
    module.scale = 4.0
    x = torch.ones(3, 4)
    assert torch.equal(module(x), module.linear(x) * 4.0)


def test_a_module_of_torch_compile_is_captured():
    module = Base(scale=2.0)
    graph, eager = graph_of(torch.compile(module, backend="eager"))
    x = torch.ones(3, 4)
    for _ in range(3):
        assert torch.equal(graph(x), eager(x))
    assert len(graph._engine.programs) == 1


@pytest.mark.parametrize("change", [
    lambda m: m.linear.register_forward_hook(lambda module, args, result: result * 3),
    lambda m: m.linear.register_forward_pre_hook(lambda module, args: (args[0] * 3,)),
    lambda m: setattr(m.linear, "bias", None),
    lambda m: setattr(m, "linear", nn.Sequential(nn.Linear(4, 4), nn.Tanh())),
], ids=["hook", "pre-hook", "no bias", "other module"])  # fmt: skip
def test_values_read_by_a_call_of_a_module_are_followed(change):
    assert_change_is_followed(Base(), change)


def test_a_removed_hook_is_followed():
    module = Base()
    handle = module.linear.register_forward_hook(lambda m, args, result: result * 3)
    assert_change_is_followed(module, lambda m: handle.remove())


def test_a_learning_rate_read_in_build_is_followed():
    module = Base()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    assert_change_is_followed(
        module,
        lambda m: optimizer.param_groups[0].update(lr=0.2),
        lambda m, x: m(x) * optimizer.param_groups[0]["lr"],
    )


@pytest.mark.parametrize("rate, untied", [(0.1, True), (0.2, False)])
def test_untied_weights_make_another_program(rate, untied):
    module = Base()
    module.other = nn.Linear(4, 4, bias=False)
    module.other.weight = module.linear.weight
    graph, eager = graph_of(module, lambda m, x: m.other(m(x)))
    x = torch.randn(3, 4)
    assert torch.equal(graph(x), eager(x))
    if untied:
        module.other.weight = nn.Parameter(module.linear.weight.detach() * 3)
    else:
        module.other.weight = module.linear.weight = nn.Parameter(module.linear.weight.detach() * 3)
    assert torch.equal(graph(x), eager(x))


def test_the_mode_of_the_first_call_stays_and_a_change_is_told_once():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    graph, eager = graph_of(module)
    x = torch.randn(3, 4)
    assert torch.equal(graph(x), eager(x))
    module.train()
    with pytest.warns(UserWarning, match="keeps the modes of its first call"):
        result = graph(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(x)
        module.eval()
        assert torch.equal(graph(x), result)
        module.train()
        graph(x)
    assert len(graph._engine.programs) == 1
