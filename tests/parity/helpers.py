"""Functions for the expressions of written.py, and the evaluation of expressions on both libraries."""

import ast
import inspect
import re
import textwrap

import numpy as np
import torch


class Scope:
    """x() and i() give the same tensors in the same order on every side; in a graph they are the graph's
    arguments.
    """

    def __init__(self, arguments=None):
        self.tensors = []  # in the order of the calls of x() and i()
        self.arguments = list(arguments) if arguments is not None else None

    def x(self, *shape):
        return self.tensor(
            lambda rng: torch.from_numpy(rng.uniform(0.1, 0.9, shape).astype("float32")).requires_grad_()
        )

    def i(self, *shape, high=4):
        return self.tensor(lambda rng: torch.from_numpy(rng.integers(0, high, shape)))

    def tensor(self, make):
        if self.arguments is not None:
            tensor = self.arguments[len(self.tensors)]
        else:
            tensor = make(np.random.default_rng((7, 0)))
        self.tensors.append(tensor)
        return tensor


def names_for(scope, lib):
    def given():
        return [t for t in scope.tensors if t.requires_grad]

    def backward(x):
        y = (x * x).sum()
        y.backward()
        return x.grad

    def manual(lib):
        x = scope.x(3)
        lib.autograd.backward([(x**2).sum()])
        return x.grad

    def hooked(x):
        x.register_hook(lambda g: g * 2)
        return backward(x)

    def kept(x):
        y = x * 2
        y.retain_grad()
        y.sum().backward()
        return y.grad

    def graded(context):
        with context():
            return (scope.x(2) * 2).requires_grad

    def sliced(lib, t):
        lib.slice_update(t, lib.ones(1, 4), [[0, 1, 1], [0, 4, 1]])
        return t

    def swapped_cross_entropy():
        target, logits = scope.i(2, high=3), scope.x(2, 3)
        return torch.nn.functional.cross_entropy(logits, target, reduction="none")

    def clipped(clip, bound):
        x = lib.nn.Parameter(scope.x(3).detach())
        (x * x).sum().backward()
        clip([x], bound)
        return x.grad

    def added(m, child):
        m.add_module("child", child)
        return [n for n, _ in m.named_children()]

    def registered(m, method, value):
        getattr(m, method)("mine", value)
        return list(m.state_dict())

    def hooks(lib, method):
        m, seen = lib.nn.ReLU(), []
        getattr(m, method)(lambda *a: seen.append(len(a)))
        m(scope.x(2)).sum().backward()
        return seen

    def trained(lib, make):
        p = lib.nn.Parameter(scope.x(2, 3).detach())
        o = make([p])
        for _ in range(4):
            o.zero_grad()
            ((p * p).sum() + p.sum()).backward()
            o.step()
        return p.detach()

    def restored(lib):
        p = lib.nn.Parameter(lib.ones(2))
        o = lib.optim.SGD([p], lr=0.1, momentum=0.9)
        o.load_state_dict(lib.optim.SGD([p], lr=0.3, momentum=0.9).state_dict())
        return o.param_groups[0]["lr"]

    def grouped(lib):
        o = lib.optim.SGD([lib.nn.Parameter(lib.ones(2))], lr=0.1)
        o.add_param_group({"params": [lib.nn.Parameter(lib.ones(3))], "lr": 0.5})
        return [g["lr"] for g in o.param_groups]

    def rates(lib, make):
        o = lib.optim.SGD([lib.nn.Parameter(lib.ones(2))], lr=0.1)
        s, seen = make(o), []
        for _ in range(6):
            seen.append(float(o.param_groups[0]["lr"]))
            o.step()
            s.step()
        return seen

    return {k: v for k, v in locals().items() if callable(v)} | {
        "lib": lib,
        "x": scope.x,
        "i": scope.i,
        "np": np,
        "torch": torch,
    }


def evaluate(code, lib, arguments=None):
    """Return (result, sampled tensors) of an expression."""
    scope = Scope(arguments)
    torch.manual_seed(0)
    return eval(code, names_for(scope, lib)), scope.tensors


def helpers_of(*sources):
    """Source of Scope and of the functions in names_for() that these expressions use, directly or through one
    another.
    """
    text = inspect.getsource(names_for)
    functions = {
        n.name: textwrap.dedent(" " * n.col_offset + ast.get_source_segment(text, n))
        for n in ast.parse(text).body[0].body
        if isinstance(n, ast.FunctionDef)
    }
    used, searched = [], " ".join(sources)
    for name in reversed(functions):
        if re.search(rf"\b{name}\b", searched):
            used.insert(0, functions[name] + "\n")
            searched += functions[name]
    return [inspect.getsource(Scope), "scope = Scope()\nx, i = scope.x, scope.i\n", *used]
