"""Graphs in these tests use the aten backend by default, because it starts immediately and gives the
reference values.
"""

import os

import pytest
import torch

os.environ.setdefault("ONEFLOW_GRAPH_BACKEND", "aten")
# a program of an earlier run would hide a failure of the compiler
os.environ.setdefault("ONEFLOW_CACHE_SIZE", "0")


def pytest_collection_modifyitems(items):
    """A test whose parameter is the backend inductor needs a C++ compiler."""
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if any(isinstance(value, str) and value == "inductor" for value in parameters):
            item.add_marker("compiler")


@pytest.fixture(autouse=True)
def the_same_numbers_in_any_order():
    """A test samples the same random numbers whichever tests ran before it in its process."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def calls_need_a_program(request, monkeypatch):
    """These tests say what a program holds, so what none holds is an error, or a warning. Tests of calls in
    eager mode have the mark `eager_calls`.
    """
    if request.node.get_closest_marker("eager_calls") is None:
        from oneflow._graph.eager_calls import EagerCalls

        monkeypatch.setattr(EagerCalls, "are_possible", lambda self: False)


@pytest.fixture
def compilations(monkeypatch):
    """The list of regions that inductor compiled."""
    from oneflow._graph.compile.inductor import compiler

    compiled, compile_region = [], compiler._compile
    monkeypatch.setattr(compiler, "_compile", lambda *a: compiled.append(a) or compile_region(*a))
    return compiled
