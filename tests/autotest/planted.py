"""A library with planted bugs: oneflow, with some names replaced."""

import types

import torch

import oneflow
import oneflow_autotest


class Library:
    """`Library(relu=f, **{"nn.Graph": G})` is oneflow with these names replaced."""

    def __init__(self, base=oneflow, **replaced):
        self._base, self._own = base, {}
        for path, value in replaced.items():
            self._replace(path.replace("__", "."), value)

    def _replace(self, path, value):
        first, _, rest = path.partition(".")
        if rest:
            inner = self._own.setdefault(first, Library(getattr(self._base, first)))
            inner._replace(rest, value)
        else:
            self._own[first] = value

    def __getattr__(self, name):
        return self._own[name] if name in self._own else getattr(self._base, name)


def harness(**replaced):
    """The harness bound to torch and the library with these bugs."""
    return oneflow_autotest.bind(torch, Library(**replaced), names=("pytorch", "buggy"))


def failure(api, program, **options):
    """The Mismatch that `program(api)` ends in, its report included."""
    import pytest

    options = {"n": 20, "check_graph": False} | options

    @api.autotest(**options)
    def run(case):
        return program(api)

    with pytest.raises(AssertionError) as caught:
        run(None)
    return caught.value


def passes(api, program, **options):
    @api.autotest(**({"n": 10} | options))
    def run(case):
        return program(api)

    run(None)


def graph_class(**bugs):
    """nn.Graph that runs build() eagerly on copies written back, with bugs: change(outputs, gradients) or
    before(args).
    """

    class Graph:
        def __init__(self):
            self.config = types.SimpleNamespace()

        def __call__(self, *args):
            if "refuse" in bugs:
                raise bugs["refuse"]
            outputs, gradients, has_gradient, inputs = self.build(*args)
            for name in ("outputs", "gradients"):
                if name in bugs:
                    for t in outputs if name == "outputs" else gradients:
                        t.data = bugs[name](t.data)
            if "inputs" in bugs:
                for t in args:
                    t.data = bugs["inputs"](t.data)
            return outputs, gradients, has_gradient, inputs

    return Graph
