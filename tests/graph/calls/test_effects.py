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

import oneflow as flow

pytestmark = pytest.mark.eager_calls
CALLS = 6


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return written(tmp_path_factory.mktemp("programs"))


def graph_of(build):
    class Step(flow.nn.Graph):
        def build(self, x):
            return build(x)

    return Step()


def outcome(make, compiled=lambda step: step):
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
                result = step(torch.tensor([1.0, k - 2.0]))
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
