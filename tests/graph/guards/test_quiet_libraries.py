"""Functions of NumPy, loggers, progress bars and JSON in build() need no warning."""

import json
import logging
import os
import sysconfig
import warnings

import numpy as np
import pytest
import torch
import tqdm
from graph_cases import graph_of
from torch._subclasses.fake_tensor import FakeTensor

log = logging.getLogger(__name__)


def flattened(x):
    return x.reshape(x.shape[0], int(np.prod(x.shape[1:])))


def with_table(x):
    return x + torch.from_numpy(np.stack([np.linspace(0.0, 1.0, 3), np.cumsum([1.0, 2.0, 3.0])])).float()


def logged(x):
    log.debug("shape %s", x.shape)
    return x * 2


def in_a_bar(x):
    for _ in tqdm.tqdm(range(2), disable=True):
        x = x * 2
    return x


def scaled_by_json(x):
    return x * json.loads('{"scale": 3}')["scale"]


def as_transformers_asks(x):
    """transformers asks whether a tensor is traced, and then leaves out a look at its values."""
    if is_traced(x):
        return x * 2
    return x * 2 if bool((x > 0).all()) else x * 2.0


LIBRARY = """
def is_traced(x):
    return isinstance(x, (Proxy, FakeTensor)) or isinstance(x, FakeTensor)
"""
names = {"Proxy": torch.fx.Proxy, "FakeTensor": FakeTensor, "__name__": "library"}
exec(compile(LIBRARY, os.path.join(sysconfig.get_paths()["purelib"], "library.py"), "exec"), names)
is_traced = names["is_traced"]


@pytest.mark.parametrize(
    "build", [flattened, with_table, logged, in_a_bar, scaled_by_json, as_transformers_asks]
)
def test_a_library_causes_no_warning_and_one_program(build):
    x = torch.arange(6.0).view(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = graph_of(build)
        results = [graph(x), graph(x)]
    for result in results:
        torch.testing.assert_close(result, build(x))
    assert len(graph._engine.programs) == 1


def test_a_generator_inside_a_progress_bar_is_still_followed():
    factors = [1.0, 2.0]

    def build(x):
        for factor in tqdm.tqdm((f * 2 for f in factors), disable=True):
            x = x * factor
        return x

    graph = graph_of(build)
    assert graph(torch.ones(1)).item() == 8
    factors[1] = 3.0
    assert graph(torch.ones(1)).item() == 12


def test_an_array_that_a_numpy_function_reads_is_still_followed():
    sizes = np.array([1.0, 2.0])
    graph = graph_of(lambda x: x * float(np.sum(sizes)))
    assert graph(torch.ones(1)).item() == 3
    sizes[0] = 4.0
    assert graph(torch.ones(1)).item() == 6
