"""Checks of values in build() that raise become checks of the program. Random numbers sampled outside torch
give a warning.
"""

import random

import numpy as np
import pytest
import torch
from checked_values import finite, in_range, names_the_row, one_of_two
from graph_cases import graph_of
from torch import nn

import oneflow as flow


@pytest.mark.parametrize("check", [finite, in_range, one_of_two, names_the_row])
def test_a_check_runs_in_every_call(check):
    layer = nn.Linear(3, 3)

    def build(x):
        hidden = layer(x)
        check(hidden)
        hidden.sum().backward()
        return hidden

    step, x = graph_of(build, torch.optim.SGD(layer.parameters(), lr=0.1), layer=layer), torch.ones(2, 3)
    step(x)
    before = [p.clone() for p in layer.parameters()]
    for bad in (x * torch.nan, x * torch.inf):
        with pytest.raises(RuntimeError, match=f"a check in build.*in {check.__name__}"):
            step(bad)
        assert all(map(torch.equal, before, layer.parameters()))
    step(x)
    assert len(step._engine.programs) == 1 and not torch.equal(before[0], layer.weight)


@pytest.mark.parametrize("clip", [torch.nn.utils.clip_grad_norm_, flow.nn.utils.clip_grad_norm_])
def test_a_check_that_torch_makes_is_one_too(clip):
    """clip_grad_norm_(error_if_nonfinite=True) was refused: its branch is in torch's code."""
    layer = nn.Linear(3, 3)

    def build(x):
        loss = layer(x).square().sum()
        loss.backward()
        return clip(layer.parameters(), 0.1, error_if_nonfinite=True)

    step, x = graph_of(build, torch.optim.SGD(layer.parameters(), lr=0.1), layer=layer), torch.ones(2, 3)
    step(x)
    before = [p.clone() for p in layer.parameters()]
    with pytest.raises(RuntimeError, match="a check in build.*in build"):
        step(x * torch.nan)
    assert all(map(torch.equal, before, layer.parameters()))
    step(x)
    assert not torch.equal(before[0], layer.weight)


def test_a_saved_program_checks_too(tmp_path):
    layer = nn.Linear(3, 3)

    def build(x):
        hidden = layer(x)
        finite(hidden)
        return hidden

    step = graph_of(build, layer=layer)
    wanted = step(torch.ones(2, 3))
    step.save(str(tmp_path / "saved"))
    loaded = flow.load_graph(str(tmp_path / "saved"))
    assert torch.equal(loaded(torch.ones(2, 3)), wanted)
    with pytest.raises(RuntimeError, match="a check in build"):
        loaded(torch.full((2, 3), torch.nan))


def chooses(x):
    return x * 2 if x.sum() > 0 else x


def returns_first(x):
    if x.sum() > 0:
        return x
    raise ValueError("negative") if x.min() < 0 else TypeError()


def catches(x):
    try:
        assert x.sum() > 0
    except AssertionError:
        return x * 0
    return x


def reads(x):
    if x.sum().item() > 0:
        raise ValueError("positive")
    return x


@pytest.mark.parametrize("function", [chooses, returns_first, catches, reads])
def test_other_branches_on_values_stay_errors(function):
    with pytest.raises(RuntimeError, match=f"needs the value of a tensor(?s:.*)in {function.__name__}"):
        graph_of(lambda x: function(x))(torch.ones(3))


@pytest.mark.parametrize(
    "draw, whose", [(random.random, "Python's random module"), (np.random.rand, "NumPy's generator")]
)
def test_random_numbers_sampled_outside_torch_warn(draw, whose):
    with pytest.warns(UserWarning, match=whose):
        graph_of(lambda x: x * draw())(torch.ones(3))


def test_numbers_an_optimizer_draws_outside_torch():
    class Noisy(torch.optim.SGD):
        def step(self, closure=None):
            if random.random() < 2:
                super().step(closure)

    layer = torch.nn.Linear(3, 1)
    with pytest.warns(
        UserWarning, match=r"step\(\) of Noisy draws numbers from Python's random module.*eager mode"
    ):
        graph_of(lambda x: layer(x).sum().backward(), Noisy(layer.parameters(), lr=0.1), layer=layer)(
            torch.ones(2, 3)
        )


def test_random_numbers_sampled_in_torch_do_not_warn(recwarn):
    graph_of(lambda x: x * torch.rand(()))(torch.ones(3))
    assert not [w for w in recwarn if "draws numbers" in str(w.message)]
