"""The table of planted bugs, and the tests that are to find them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

KINDS = (
    "error size",
    "only some values",
    "shape and layout",
    "dtype",
    "gradient",
    "second derivative",
    "memory",
    "metadata",
    "errors",
    "arguments",
    "modules",
    "optimizers",
    "graph",
    "state",
)


@dataclass
class Mutant:
    """A bug: `replaced` names of torch, and the test that a user would write with the defaults.

    beyond: why a test with the defaults cannot find it; such a bug does not count.
    """

    kind: str
    name: str
    replaced: dict[str, Any]
    program: Callable
    options: dict = field(default_factory=dict)
    beyond: str = ""


MUTANTS: list[Mutant] = []


def mutant(kind, path, program=None, beyond="", **options):
    """Register the decorated function or class as a bug of `torch.<path>`."""
    assert kind in KINDS, kind

    def decorate(replacement):
        test = program or of_one_tensor(path)
        name = replacement.__name__
        assert all(m.name != name for m in MUTANTS), f"two mutants {name}"
        MUTANTS.append(Mutant(kind, name, {path: replacement}, test, options, beyond))
        return replacement

    return decorate


# ---------------------------------------------------------------------- tests with the defaults
def called(api, path, *args, **kwargs):
    function = api.torch
    for name in path.split("."):
        function = getattr(function, name)
    return function(*args, **kwargs)


def of_one_tensor(path, *rest, **keywords):
    """A test that calls the function with a sampled matrix."""
    return lambda api: called(api, path, api.random_tensor(2), *rest, **keywords)


def of_a_vector(path, *rest, **keywords):
    return lambda api: called(api, path, api.random_tensor(1, api.random(1, 8)), *rest, **keywords)


def of_two_tensors(path, *rest, **keywords):
    """A test that calls the function with two matrices of one shape."""

    def program(api):
        n, m = api.random(1, 6).to(int), api.random(1, 6).to(int)
        return called(api, path, api.random_tensor(2, n, m), api.random_tensor(2, n, m), *rest, **keywords)

    return program


def of_a_product(path):
    def program(api):
        n, k, m = (api.random(1, 7).to(int) for _ in range(3))
        return called(api, path, api.random_tensor(2, n, k), api.random_tensor(2, k, m))

    return program


def of_a_module(path, *arguments, ndim=2, features=3, **keywords):
    """A test that makes a module and calls it with a tensor that fits."""

    def program(api):
        module = called(api, path, *arguments, **keywords)
        sizes = {"dim1": features} if ndim == 2 else {"dim1": features, "dim2": 5, "dim3": 6}
        return module(api.random_tensor(ndim, **sizes))

    return program


def with_gradient(function, backward):
    """An operator with this forward, and backward(gradient, input)."""

    class Operator(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return function(x)

        @staticmethod
        def backward(ctx, g):
            return backward(g, ctx.saved_tensors[0])

    return Operator.apply


def where(condition, change):
    """Return change(result) where condition(input), applied to the result of an operator."""

    def apply(x, result):
        return torch.where(condition(x), change(result), result)

    return apply


__all__ = [name for name in dir() if not name.startswith("_")] + ["F", "torch"]
