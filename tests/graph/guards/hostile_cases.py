"""A build function that reads Python state, a change between two calls, and the graph's reaction to the
change.
"""

import warnings
from collections.abc import Callable

import torch
from torch import nn

import oneflow as flow
from oneflow._errors import OneFlowError

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def verdict(build: Callable, change: Callable[[], object], module: nn.Module | None = None, x=X) -> str:
    """Call a graph and eager, change a fact, call both again.

    Return "followed" if both give the same bits, "named" if they differ and a warning or a readable error
    said at the capture what the graph does not follow, "both raise", or "SILENT". `change` runs once, so
    build() must read the same objects in eager mode and in the graph, and must leave them as they are.
    """

    class Reads(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            if module is not None:
                self.module = module
            self.config.set_backend("aten")

        def build(self, x):
            return build(x)

    graph = Reads()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = build(x)
        for _ in range(2):
            assert torch.equal(graph(x), before), "the first calls differ"
    named = [str(w.message) for w in caught if "does not follow" in str(w.message)]
    change()
    return _compared(graph, build, before, x, named)


def _compared(graph, build, before, x, named) -> str:
    for _ in range(2):
        try:
            expected = build(x)
        except Exception as failure:
            expected = failure
        try:
            got = graph(x)
        except OneFlowError:
            return "named"
        except Exception as failure:
            return "both raise" if type(failure) is type(expected) else f"UNREADABLE {failure!r}"
        if isinstance(expected, Exception):
            return "only eager raises"
        assert not torch.equal(expected, before), "the change changes nothing"
        if not torch.equal(expected, got):
            return "named" if named else "SILENT"
    return "followed"
