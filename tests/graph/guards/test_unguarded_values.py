"""A warning names each value that build() reads and no guard follows; a strict graph refuses it."""

import datetime
import itertools
import os
import random
import time
import uuid
import warnings

import numpy as np
import pytest
import torch
from stale_cases import Base, graph_of

GENERATOR, NUMBERS, COUNT = random.Random(0), np.random.default_rng(0), itertools.count(1)


def endless():
    while True:
        yield 1.0


ENDLESS = endless()


@pytest.mark.parametrize(
    "read, expression, what",
    [
        (lambda: GENERATOR.random(), "GENERATOR.random()", "random generator"),
        (lambda: GENERATOR.uniform(1, 2), "GENERATOR.uniform(1, 2)", "random generator"),
        (lambda: float(NUMBERS.random()), "NUMBERS.random()", "random generator"),
        (lambda: next(COUNT), "next(COUNT)", "an iterator"),
        (lambda: next(ENDLESS), "next(ENDLESS)", "an iterator"),
        (lambda: time.time() % 7, "time.time()", "a clock"),
        (lambda: time.perf_counter() % 7, "time.perf_counter()", "a clock"),
        (lambda: datetime.datetime.now().second, "datetime.datetime.now()", "a clock"),
        (lambda: uuid.uuid4().int % 7, "uuid.uuid4()", "random generator"),
        (lambda: int.from_bytes(os.urandom(1), "big"), "os.urandom(1)", "random generator"),
        (lambda: len(open(__file__).read()) % 7, "open(__file__)", "the file system"),
    ],
    ids=[
        "Random",
        "uniform",
        "default_rng",
        "count",
        "own generator",
        "time",
        "perf_counter",
        "now",
        "uuid4",
        "urandom",
        "open",
    ],
)
def test_values_without_a_guard_are_named_once(read, expression, what):
    graph, _ = graph_of(Base(), lambda m, x: m(x) * read())
    x = torch.randn(3, 4)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        graph(x)
        graph(x)
    texts = [str(w.message) for w in told if "does not follow" in str(w.message)]
    assert len(texts) == 1, texts
    assert what in texts[0] and "test_unguarded_values.py" in texts[0]
    assert expression in texts[0]


def test_a_counter_that_build_reads_and_changes_is_named():
    counts = {"n": 0}

    def body(module, x):
        counts["n"] = counts["n"] + 1
        return module(x) * (2 if counts["n"] > 2 else 1)

    graph, _ = graph_of(Base(), body)
    with pytest.warns(UserWarning, match="does not follow"):
        graph(torch.ones(2, 4))


class Average:
    """An object with a tensor, so that the garbage collector lists its dict of attributes."""

    def __init__(self):
        self.updates, self.value = 0, torch.zeros(3, 4)

    def factor(self):
        self.updates += 1
        return 1.0 / self.updates + float(self.value.ndim)


def test_a_counter_of_an_object_with_tensors_is_named():
    average = Average()
    graph, _ = graph_of(Base(), lambda module, x: module(x) * average.factor())
    with pytest.warns(UserWarning, match=r"does not follow[^$]*self\.updates"):
        graph(torch.ones(2, 4))


def test_a_strict_graph_refuses_what_it_cannot_follow_and_changes_nothing():
    module = Base(lambda m, y: y * time.time(), count=0)
    graph, _ = graph_of(module)
    graph.config.strict(True)
    with pytest.raises(RuntimeError, match=r"strict.*\n.*time\.time\(\)"):
        graph(torch.ones(2, 4))
    graph.config.strict(False)
    with pytest.warns(UserWarning, match="a clock"):
        graph(torch.ones(2, 4))


def test_each_new_program_reports_its_reason(capsys):
    module = Base(lambda m, y: y * float(f"{m.scale}"), scale=1.0)
    graph, _ = graph_of(module)
    graph.debug(1)
    for scale in (1.0, 2.0, 3.0):
        module.scale = scale
        graph(torch.ones(2, 4))
    explained = graph.explain()
    assert "guard of Base.scale: changed from 2.0 to 3.0" in explained and "each of 2 changes" in explained
    assert "test_unguarded_values.py" in explained and "m.scale" in explained
    assert "another program: guard of Base.scale: changed from 1.0 to 2.0" in capsys.readouterr().out
