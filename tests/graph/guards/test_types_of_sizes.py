"""Sizes and comparisons of sizes have the same types as in eager mode, although one program serves many
sizes.
"""

import functools

import pytest
import torch

import oneflow as flow


@functools.singledispatch
def factor(value):
    return 3.0


@factor.register
def _(value: bool):
    return 2.0


def by_isinstance(n):
    return 2.0 if isinstance(n > 3, bool) else 3.0


def by_type(n):
    return 2.0 if type(n > 3) is bool else 3.0


def by_identity(n):
    return 2.0 if (n > 3) is True else 3.0


def by_table(n):
    return {True: 2.0, False: 3.0}[n > 3]


def by_match_of_value(n):
    match n > 3:
        case True:
            return 2.0
        case False:
            return 3.0


def by_match_of_class(n):
    match n > 3:
        case bool():
            return 2.0
        case _:
            return 3.0


def by_dispatch(n):
    return factor(n > 3)


@pytest.mark.parametrize(
    "body",
    [by_isinstance, by_type, by_identity, by_table, by_match_of_value, by_match_of_class, by_dispatch],
)
def test_comparison_of_a_size_is_a_bool(body):
    class Compares(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.dynamic(True)

        def build(self, x):
            return x * body(x.shape[0])

    graph = Compares()
    for n in (2, 3, 4, 5, 7):
        x = torch.ones(n, 4)
        assert torch.equal(graph(x), x * body(n))
    assert len(graph._engine.programs) == 2


def test_size_that_a_class_pattern_matches_is_an_int():
    def body(n):
        match n:
            case int():
                return 2.0
            case _:
                return 3.0

    class Matches(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.dynamic(True)

        def build(self, x):
            return x * body(x.shape[0])

    graph = Matches()
    for n in (2, 3):
        assert torch.equal(graph(torch.ones(n, 4)), torch.full((n, 4), 2.0))
