"""A graph follows changes of Python state that step() of an optimizer reads, as in eager mode."""

import pytest
import torch
from training_pair import Pair

SCALE = 2.0
SCALES = {"gradient": 2.0}


def scaled_gradient(parameter):
    return parameter.grad * SCALE


class Scaled(torch.optim.Optimizer):
    """Gradient descent that reads many kinds of Python values."""

    sign = 1.0

    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr, "powers": [1.0]})
        self.factor, self.factors = 1.0, [1.0]

    @torch.no_grad()
    def step(self, closure=None):
        factor = self.factor * self.factors[0] * SCALES["gradient"] * self.sign
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(scaled_gradient(parameter) * factor * group["powers"][0], alpha=-group["lr"])


def scaled(model):
    return Scaled(model.parameters())


def assert_change_is_followed(make_optimizer, change):
    """`change(model, optimizer)` between two steps is followed by another program, which serves on."""
    pair = Pair(make_optimizer)
    for _ in range(3):
        pair.step()
    before = pair.program_count
    pair.change(change)
    for _ in range(2):
        pair.step()
    assert pair.program_count == before + 1


def test_attribute_of_the_optimizer_is_followed():
    assert_change_is_followed(scaled, lambda model, optimizer: setattr(optimizer, "factor", 3.0))


def test_element_of_a_list_of_the_optimizer_is_followed():
    assert_change_is_followed(scaled, lambda model, optimizer: optimizer.factors.__setitem__(0, 3.0))


def test_element_of_a_list_among_the_options_is_followed():
    assert_change_is_followed(
        scaled, lambda model, optimizer: optimizer.param_groups[0]["powers"].__setitem__(0, 3.0)
    )


def test_global_of_a_function_that_step_calls(monkeypatch):
    assert_change_is_followed(scaled, lambda model, optimizer: monkeypatch.setitem(globals(), "SCALE", 3.0))


def test_entry_of_a_global_dict_is_followed(monkeypatch):
    assert_change_is_followed(scaled, lambda model, optimizer: monkeypatch.setitem(SCALES, "gradient", 3.0))


def test_replaced_function_that_step_calls(monkeypatch):
    def tripled(parameter):
        return parameter.grad * 3

    assert_change_is_followed(
        scaled, lambda model, optimizer: monkeypatch.setitem(globals(), "scaled_gradient", tripled)
    )


def test_attribute_of_the_class_is_followed(monkeypatch):
    assert_change_is_followed(scaled, lambda model, optimizer: monkeypatch.setattr(Scaled, "sign", 0.5))


def test_replaced_step_of_the_class_is_followed(monkeypatch):
    assert_change_is_followed(
        scaled, lambda model, optimizer: monkeypatch.setattr(Scaled, "step", lambda self: None)
    )


def test_counter_in_a_closure_is_followed():
    """A list in a closure, as a warm-up has it."""
    factor = [1.0]

    def make(model):
        class Closure(torch.optim.SGD):
            @torch.no_grad()
            def step(self, closure=None):
                for parameter in self.param_groups[0]["params"]:
                    parameter.grad.mul_(factor[0])
                super().step()

        return Closure(model.parameters(), lr=0.1)

    assert_change_is_followed(make, lambda model, optimizer: factor.__setitem__(0, 3.0))


@pytest.mark.parametrize("name", ["lerp_", "mul_", "addcmul_", "addcdiv_"])
def test_replaced_method_that_adam_calls(monkeypatch, name):
    original = getattr(torch.Tensor, name)

    def twice(tensor, *args, **options):
        original(tensor, *args, **options)
        return original(tensor, *args, **options)

    def adam(model):
        return torch.optim.Adam(model.parameters(), lr=0.1, foreach=False)

    assert_change_is_followed(adam, lambda model, optimizer: monkeypatch.setattr(torch.Tensor, name, twice))


@pytest.mark.parametrize("name", ["_foreach_add_", "_foreach_lerp_", "_foreach_addcdiv_"])
def test_replaced_function_that_adam_calls(monkeypatch, name):
    original = getattr(torch, name)

    def twice(*args, **options):
        original(*args, **options)
        return original(*args, **options)

    def adam(model):
        return torch.optim.Adam(model.parameters(), lr=0.1, foreach=True)

    assert_change_is_followed(adam, lambda model, optimizer: monkeypatch.setattr(torch, name, twice))


def test_values_that_step_does_not_read_make_no_program():
    pair = Pair(scaled)
    for _ in range(3):
        pair.step()
    pair.change(lambda model, optimizer: setattr(optimizer, "comment", "warm"))
    pair.change(lambda model, optimizer: optimizer.load_state_dict(optimizer.state_dict()))
    pair.step()
    assert pair.program_count == 1


class Looks(torch.optim.SGD):
    """Multiplies gradients by an option, if `factor_of(group, state)` finds one."""

    def __init__(self, parameters, factor_of):
        super().__init__(parameters, lr=0.1, momentum=0.9)
        self.factor_of = factor_of

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(self.factor_of(group, self.state[parameter]))
        return super().step(closure)


@pytest.mark.parametrize("factor_of", [
    lambda group, state: group.get("factor", 1.0),
    lambda group, state: 3.0 if "factor" in group else 1.0,
    lambda group, state: float(len(group)),
    lambda group, state: 3.0 if any(name == "factor" for name in group) else 1.0,
    lambda group, state: state.get("factor", 1.0),
    lambda group, state: 3.0 if "factor" in state else 1.0,
], ids=["get", "in", "len", "iteration", "get of state", "in state"])  # fmt: skip
def test_option_or_state_that_is_added_later(factor_of):
    def add(model, optimizer):
        group = optimizer.param_groups[0]
        for holder in (group, *map(optimizer.state.__getitem__, group["params"])):
            holder["factor"] = 3.0

    assert_change_is_followed(lambda model: Looks(model.parameters(), factor_of), add)


def test_initial_rate_that_a_schedule_adds_makes_no_program():
    pair = Pair(lambda model: torch.optim.SGD(model.parameters(), lr=0.1))
    pair.step()
    before = pair.program_count
    pair.change(lambda model, optimizer: optimizer.param_groups[0].setdefault("initial_lr", 0.1))
    pair.step()
    assert pair.program_count == before
