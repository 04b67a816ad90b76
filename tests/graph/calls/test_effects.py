"""Programs that look at values and change Python objects give in a graph what they give in eager mode."""

import contextlib
import copy
import functools
import io
import logging
import random
import warnings

import numpy as np
import pytest
import torch
from effect_programs import PROGRAMS, written
from number_programs import CASES
from number_programs import programs as number_programs

import oneflow as flow

pytestmark = pytest.mark.eager_calls
CALLS = 6


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return written(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def programs_with_numbers(tmp_path_factory):
    return written(tmp_path_factory.mktemp("programs"), number_programs())


def graph_of(build):
    class Step(flow.nn.Graph):
        def build(self, x):
            return build(x)

    return Step()


def vector(k):
    return torch.tensor([1.0, k - 2.0])


def batch(k):
    """A batch of another size in each call."""
    return torch.arange(2.0 * (3 + k % 4)).reshape(-1, 2) - k


def outcome(make, compiled=lambda step: step, argument=vector):
    """Return what the calls return, show and leave behind."""
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    step, observed = make()
    step = compiled(step)
    text, values = io.StringIO(), []
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with contextlib.redirect_stdout(text), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for k in range(CALLS):
                result = step(argument(k))
                values.append(result.tolist() if hasattr(result, "tolist") else result)
                values.append(copy.deepcopy(observed()))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    return values, text.getvalue()


@pytest.mark.parametrize("compiled", [graph_of, functools.partial(flow.compile_step, backend="aten")])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_results_the_output_and_the_state_of_eager_mode(name, compiled, programs):
    make = getattr(programs, f"make_{name}")
    assert outcome(make, compiled) == outcome(make)


@pytest.mark.parametrize(("place", "number"), CASES)
def test_a_number_of_a_tensor_is_kept_as_in_eager_mode(place, number, programs_with_numbers):
    make = getattr(programs_with_numbers, f"make_{place}_{number}")
    compiled = functools.partial(flow.compile_step, backend="aten")
    assert outcome(make, compiled, batch) == outcome(make, argument=batch)
